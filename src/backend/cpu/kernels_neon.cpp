// The kernels compiled for 64-bit ARM with dot products.
namespace lily::cpu {
namespace {
constexpr int kLanes = 4;  // f32 numbers in a vector, and rows in a tile of a product
}
}  // namespace lily::cpu

#include "backend/cpu/isa_neon.h"
#include "backend/cpu/table_impl.h"

namespace lily::cpu {

const Kernels& neon_kernels() {
  static constexpr Kernels kKernels = make_kernels("neon", "NEON, dot products");
  return kKernels;
}

}  // namespace lily::cpu
