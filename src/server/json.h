// Answers as JSON text. (Requests are read by text/python_json.h, which keeps what the chat template must
// see.) Include nlohmann/json.hpp in the .cpp that calls this.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lily {

/// Compact text; bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string dump_json(const nlohmann::ordered_json& value);

}  // namespace lily
