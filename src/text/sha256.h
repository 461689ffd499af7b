// SHA-256, for telling files apart.
#pragma once

#include <string>
#include <string_view>

namespace lily {

/// The digest as 64 lower-case hexadecimal digits.
[[nodiscard]] std::string sha256_hex(std::string_view bytes);

}  // namespace lily
