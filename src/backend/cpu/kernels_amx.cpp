// The kernels compiled for AVX-512 F, BW, VL, DQ, VNNI and BF16, and AMX with bf16.
namespace lily::cpu {
namespace {
constexpr int kLanes = 16;  // f32 numbers in a vector, and rows in a tile of a product
}
}  // namespace lily::cpu

#include "backend/cpu/attention_bf16.h"
#include "backend/cpu/attention_q8.h"
#include "backend/cpu/isa_avx512.h"
#include "backend/cpu/matmul_amx.h"
#include "backend/cpu/table_impl.h"

namespace lily::cpu {

const Kernels& amx_kernels() {
  static constexpr Kernels kKernels = [] {
    Kernels kernels = make_kernels("amx", "AMX bf16 for prompts, AVX-512 VNNI BF16");
    kernels.token_tile = kTileRows;
    kernels.quantize = quantize_amx;
    kernels.matmul_prefill = matmul_prefill_amx;
    kernels.attend_bf16 = attend_bf16;
    kernels.attend_q8 = attend_q8;
    kernels.multiply_registers = multiply_registers_amx;
    return kernels;
  }();
  return kKernels;
}

}  // namespace lily::cpu
