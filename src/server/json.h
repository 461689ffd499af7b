// JSON of requests and answers: parsing that outside bytes cannot hurt, writing that always gives valid
// UTF-8. Include nlohmann/json.hpp in the .cpp that calls this.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lily {

/// Deepest nesting of arrays and objects in a request: values are copied and printed recursively.
inline constexpr int kMaxJsonDepth = 128;

/// Parses one JSON text, keeping the order of keys (of two equal keys the last counts). kInvalidArgument for
/// a syntax error, bytes that are not UTF-8, half a surrogate pair, a number beyond a double, or deeper
/// nesting than the limit.
Result<nlohmann::ordered_json> parse_request_json(std::string_view text);

/// Compact text; bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string dump_json(const nlohmann::ordered_json& value);

}  // namespace lily
