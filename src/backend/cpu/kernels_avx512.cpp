// The kernels compiled for AVX-512 F, BW, VL, DQ and VNNI.
namespace lily::cpu {
namespace {
constexpr int kLanes = 16;  // f32 numbers in a vector, and rows in a tile of a product
}
}  // namespace lily::cpu

#include "backend/cpu/attention_q8.h"
#include "backend/cpu/isa_avx512.h"
#include "backend/cpu/table_impl.h"

namespace lily::cpu {

const Kernels& avx512_kernels() {
  static constexpr Kernels kKernels = [] {
    Kernels kernels = make_kernels("avx512", "AVX-512 VNNI");
    kernels.attend_q8 = attend_q8;
    return kernels;
  }();
  return kKernels;
}

}  // namespace lily::cpu
