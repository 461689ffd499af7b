// Which lily this is.
#pragma once

#include <string>

namespace lily {

/// "0.1.0"
[[nodiscard]] std::string version();
/// "d4ae48d01f2c", "d4ae48d01f2c-dirty"; empty when it was not built from a git checkout.
[[nodiscard]] std::string commit();

}  // namespace lily
