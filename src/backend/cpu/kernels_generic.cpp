// The kernels compiled for whatever the compiler assumes of every machine of this architecture.
namespace lily::cpu {
namespace {
constexpr int kLanes = 4;  // f32 numbers in a vector, and rows in a tile of a product
}
}  // namespace lily::cpu

#include "backend/cpu/isa_generic.h"
#include "backend/cpu/table_impl.h"

namespace lily::cpu {

const Kernels& generic_kernels() {
  static constexpr Kernels kKernels = make_kernels("generic", "generic");
  return kKernels;
}

}  // namespace lily::cpu
