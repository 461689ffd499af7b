// Quantities as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace lily {

/// "512 B", "19.5 GB": decimal units, three digits.
[[nodiscard]] std::string format_bytes(double bytes);
/// "0.8 s", "42 s", "3 min 05 s", "2 h 04 min".
[[nodiscard]] std::string format_seconds(double seconds);

}  // namespace lily
