// The kernels compiled for AVX2 and FMA.
namespace lily::cpu {
namespace {
constexpr int kLanes = 8;  // f32 numbers in a vector, and rows in a tile of a product
}
}  // namespace lily::cpu

#include "backend/cpu/isa_avx2.h"
#include "backend/cpu/table_impl.h"

namespace lily::cpu {

const Kernels& avx2_kernels() {
  static constexpr Kernels kKernels = make_kernels("avx2", "AVX2");
  return kKernels;
}

}  // namespace lily::cpu
