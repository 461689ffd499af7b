// The API's own description.
#pragma once

#include <string_view>

namespace lily {

/// docs/openapi.json.
[[nodiscard]] std::string_view openapi_json();

}  // namespace lily
