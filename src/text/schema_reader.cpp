#include "text/schema_reader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "text/python_json.h"

namespace lily::schema {
namespace {

constexpr std::uint32_t kMostCounted = 65'536;  // maxLength, maxItems and the like

// Keywords whose meaning cannot be kept.
constexpr std::array<std::string_view, 22> kUnsupported = {"not",
                                                           "if",
                                                           "then",
                                                           "else",
                                                           "patternProperties",
                                                           "propertyNames",
                                                           "dependencies",
                                                           "dependentRequired",
                                                           "dependentSchemas",
                                                           "unevaluatedProperties",
                                                           "unevaluatedItems",
                                                           "contains",
                                                           "minContains",
                                                           "maxContains",
                                                           "uniqueItems",
                                                           "minProperties",
                                                           "maxProperties",
                                                           "multipleOf",
                                                           "$dynamicRef",
                                                           "$recursiveRef",
                                                           "contentMediaType",
                                                           "contentSchema"};

constexpr std::array<std::string_view, 15> kAnnotations = {
    "title",    "description", "default",  "examples",      "deprecated",
    "readOnly", "writeOnly",   "$comment", "$schema",       "$id",
    "$defs",    "definitions", "$anchor",  "discriminator", "example"};

Result<std::uint32_t> count(const Json& schema, const char* keyword, std::uint32_t otherwise,
                            const std::string& path) {
  const Json* value = find(schema, keyword);
  if (value == nullptr) return otherwise;
  const double number = value->is_number() ? value->get<double>() : -1;
  if (!(number >= 0 && number <= kMostCounted) || std::trunc(number) != number) {
    return problem(at(path, keyword), "expected an integer from 0 to {}, found {}", kMostCounted,
                   spelled(*value));
  }
  return static_cast<std::uint32_t>(number);
}

Result<std::optional<std::int64_t>> bound(const Json& schema, const char* keyword, bool integer, bool upper,
                                          const std::string& path) {
  const Json* value = find(schema, keyword);
  if (value == nullptr || value->is_boolean()) return std::optional<std::int64_t>();
  double number = value->is_number() ? value->get<double>() : std::nan("");
  if (value->is_binary())
    number = std::strtod(spelled(*value).c_str(), nullptr);  // an integer beyond 64 bits
  if (integer && std::isfinite(number)) number = upper ? std::floor(number) : std::ceil(number);
  const auto largest = static_cast<double>(kMaxBound);
  if (upper ? number > largest : number < -largest) return std::optional<std::int64_t>();  // says nothing
  if (!(std::abs(number) <= largest) || std::trunc(number) != number) {
    return problem(at(path, keyword), "expected a whole number of at most 18 digits, found {}",
                   spelled(*value));
  }
  if (value->is_number_integer()) return std::optional(value->get<std::int64_t>());
  return std::optional(static_cast<std::int64_t>(number));
}

bool is_true(const Json& schema, const char* keyword) {
  const Json* value = find(schema, keyword);
  return value != nullptr && *value == Json(true);
}

bool some_number_is_within(const NumberBounds& bounds, bool integer) {
  if (!bounds.least || !bounds.most) return true;
  const std::int64_t room = *bounds.most - *bounds.least;
  if (room == 0) return !bounds.least_exclusive && !bounds.most_exclusive;
  if (room == 1) return !(integer && bounds.least_exclusive && bounds.most_exclusive);
  return room > 0;
}

}  // namespace

std::string at(const std::string& path, std::string_view step) {
  return path.empty() ? std::string(step) : fmt::format("{}.{}", path, step);
}

std::string spelled(const Json& value) {
  return to_compact_json(value).value();
}

const Json* find(const Json& schema, std::string_view keyword) {
  const auto found = schema.find(keyword);
  return found == schema.end() ? nullptr : &*found;
}

bool is_annotation(std::string_view keyword) {
  return std::ranges::find(kAnnotations, keyword) != kAnnotations.end();
}

Json without(const Json& schema, std::string_view keyword) {
  Json out = Json::object();
  for (const auto& [key, value] : schema.items()) {
    if (key != keyword && !is_annotation(key)) out[key] = value;
  }
  return out;
}

Result<void> check_keywords(const Json& schema, const std::string& path) {
  for (const auto& [keyword, meaning] : schema.items()) {
    const bool off = meaning.is_null() || meaning == Json(false);
    if (!off && std::ranges::find(kUnsupported, keyword) != kUnsupported.end()) {
      return problem(at(path, keyword), "not supported in constrained output");
    }
  }
  return {};
}

Result<CountRange> read_count_range(const Json& schema, const char* least, const char* most,
                                    const std::string& path) {
  CountRange range;
  LILY_TRY(range.least, count(schema, least, range.least, path));
  LILY_TRY(range.most, count(schema, most, range.most, path));
  if (range.least > range.most) return problem(at(path, least), "is above {}", most);
  return range;
}

Result<NumberBounds> read_number_bounds(const Json& schema, bool integer, const std::string& path) {
  NumberBounds bounds;
  LILY_TRY(bounds.least, bound(schema, "minimum", integer, false, path));
  LILY_TRY(bounds.most, bound(schema, "maximum", integer, true, path));
  LILY_TRY(const auto above, bound(schema, "exclusiveMinimum", integer, false, path));
  LILY_TRY(const auto below, bound(schema, "exclusiveMaximum", integer, true, path));
  // Before draft 6 these said of minimum and maximum that they are exclusive.
  bounds.least_exclusive = bounds.least && is_true(schema, "exclusiveMinimum");
  bounds.most_exclusive = bounds.most && is_true(schema, "exclusiveMaximum");
  if (above && (!bounds.least || *above >= *bounds.least)) {
    bounds.least = above;
    bounds.least_exclusive = true;
  }
  if (below && (!bounds.most || *below <= *bounds.most)) {
    bounds.most = below;
    bounds.most_exclusive = true;
  }
  if (!some_number_is_within(bounds, integer)) return problem(path, "no number is within the bounds");
  return bounds;
}

}  // namespace lily::schema
