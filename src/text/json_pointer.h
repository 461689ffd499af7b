// References inside one JSON document, as JSON Schema writes them: "#/$defs/node".
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace lily {

/// What `reference` ("#", or "#/" and a JSON pointer, RFC 6901) points at in `root`; null where it points
/// nowhere or out of the document.
[[nodiscard]] const nlohmann::ordered_json* resolve_local_reference(const nlohmann::ordered_json& root,
                                                                    std::string_view reference);

}  // namespace lily
