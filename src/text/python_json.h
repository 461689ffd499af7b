// JSON as Python's json module reads and writes it, which is what chat templates were written against.
// Include nlohmann/json.hpp in the .cpp that calls this.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lily {

/// Deepest nesting of arrays and objects that is read or written.
inline constexpr int kMaxTemplateJsonDepth = 128;

/// Parses one JSON text: key order kept, of two equal keys the last value in the place of the first. An
/// integer beyond 64 bits stays exact (as a binary value that to_template_json() knows). kInvalidArgument for
/// what is not JSON, not UTF-8, beyond a double or nested too deep. Linear in the text, also for objects of
/// many keys.
Result<nlohmann::ordered_json> parse_template_json(std::string_view text);

/// JSON text as transformers' `tojson` prints it: ", " and ": ", non-ASCII raw, key order kept, floats as
/// Python's repr. kInvalidArgument when nested too deep.
Result<std::string> to_template_json(const nlohmann::ordered_json& value);

/// The same without blanks: the shortest JSON text of a value of parse_template_json().
Result<std::string> to_compact_json(const nlohmann::ordered_json& value);

/// A scalar as Python's str() prints it: True, None, 1.0, and strings as they are.
[[nodiscard]] std::string to_python_str(const nlohmann::ordered_json& scalar);

}  // namespace lily
