#include "server/field_reader.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "server/json.h"
#include "text/python_json.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

// Exact values only: 5.0 is 5, 5.5 and 1e300 are none.
std::optional<std::int64_t> as_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (std::trunc(number) != number || std::abs(number) >= 0x1p63) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

}  // namespace

std::string describe(const Json& value) {
  constexpr std::size_t kLongest = 60;
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  if (value.is_string() && value.get_ref<const std::string&>().size() > kLongest) {
    return dump_json(value.get_ref<const std::string&>().substr(0, kLongest)) + "...";
  }
  // Also prints what parse_template_json makes of an integer beyond 64 bits.
  const auto text = to_template_json(value);
  return text.ok() ? *text : "something else";
}

FieldReader::FieldReader(const Json& object, std::string path, std::optional<ApiError>& error)
    : object_(object), path_(std::move(path)), error_(error) {
  if (!error_ && !object_.is_object()) {
    error_ =
        invalid_field(path_.empty() ? "request" : path_, "expected an object, found " + describe(object_));
  }
}

const Json* FieldReader::find(std::string_view name) const {
  if (error_ || !object_.is_object()) return nullptr;
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::string FieldReader::path_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

void FieldReader::fail(std::string_view name, const std::string& problem) {
  if (!error_) error_ = invalid_field(path_of(name), problem);
}

void FieldReader::refuse(std::string_view name, const std::string& problem) {
  if (!error_) error_ = unsupported_field(path_of(name), problem);
}

void FieldReader::boolean(std::string_view name, bool& out) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_boolean()) return fail(name, "expected true or false, found " + describe(*value));
  out = value->get<bool>();
}

void FieldReader::number(std::string_view name, Range<double> range, float& out) {
  const Json* value = find(name);
  if (value == nullptr) return;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= range.least && number <= range.most)) {
    return fail(name, fmt::format("expected a number from {} to {}, found {}", range.least, range.most,
                                  describe(*value)));
  }
  out = static_cast<float>(number);
}

void FieldReader::integer(std::string_view name, Range<std::int64_t> range, std::int64_t& out) {
  const Json* value = find(name);
  if (value == nullptr) return;
  const auto number = as_integer(*value);
  if (!number || *number < range.least || *number > range.most) {
    return fail(name, fmt::format("expected an integer from {} to {}, found {}", range.least, range.most,
                                  describe(*value)));
  }
  out = *number;
}

void FieldReader::string(std::string_view name, std::string& out) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_string()) return fail(name, "expected a string, found " + describe(*value));
  out = value->get<std::string>();
}

}  // namespace lily
