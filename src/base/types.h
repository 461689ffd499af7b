// Names for small integers that cross module boundaries.
#pragma once

#include <cstdint>

namespace lily {

using TokenId = std::int32_t;

}  // namespace lily
