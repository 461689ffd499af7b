// The keywords of one JSON Schema: found, checked and refused by name.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/grammar.h"
#include "text/json_numbers.h"

namespace lily::schema {

using Json = nlohmann::ordered_json;

inline constexpr int kDeepest = 128;  ///< schemas within schemas, references followed

/// `step` below `path`, as errors write it: "properties.a.items".
[[nodiscard]] std::string at(const std::string& path, std::string_view step);

/// kInvalidArgument about the place `path`.
template <class... Args>
[[nodiscard]] Error problem(const std::string& path, fmt::format_string<Args...> format, Args&&... args) {
  const std::string place = path.empty() ? "schema" : path;
  return fail(ErrorCode::kInvalidArgument, "{}: {}", place, fmt::format(format, std::forward<Args>(args)...));
}

/// A value's JSON text, integers beyond 64 bits exact.
[[nodiscard]] std::string spelled(const Json& value);

/// What the keyword says; null where it is absent.
[[nodiscard]] const Json* find(const Json& schema, std::string_view keyword);

/// Whether the keyword says nothing about which values there are.
[[nodiscard]] bool is_annotation(std::string_view keyword);

/// The schema without `keyword` and annotations.
[[nodiscard]] Json without(const Json& schema, std::string_view keyword);

/// An error where the schema has a keyword whose meaning cannot be kept.
Result<void> check_keywords(const Json& schema, const std::string& path);

/// minLength and maxLength, minItems and maxItems.
struct CountRange {
  std::uint32_t least = 0;
  std::uint32_t most = Grammar::kUnbounded;
  [[nodiscard]] bool limited() const { return least > 0 || most != Grammar::kUnbounded; }
};
Result<CountRange> read_count_range(const Json& schema, const char* least, const char* most,
                                    const std::string& path);

/// minimum, maximum and their exclusive forms; some number is within them. Fractions only where rounding them
/// inwards loses nothing.
Result<NumberBounds> read_number_bounds(const Json& schema, bool integer, const std::string& path);

}  // namespace lily::schema
