// Random quantised matrices in unaligned memory, and plain f32 code to compare products with.
#pragma once

#include "backend/random_model.h"

namespace lily::testing {

using lily::random_floats;
using lily::RandomMatrix;

}  // namespace lily::testing
