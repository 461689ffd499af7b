// JSON as the commands print it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lily {

/// One line, or indented by two for a file somebody may open. Bytes that are not UTF-8 (a folder's name, a
/// message from a pipe) become U+FFFD.
[[nodiscard]] std::string json_line(const nlohmann::ordered_json& json);
[[nodiscard]] std::string json_document(const nlohmann::ordered_json& json);

}  // namespace lily
