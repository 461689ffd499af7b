// The kernel table of the instruction set being compiled.
#pragma once

#include "backend/cpu/arithmetic_impl.h"
#include "backend/cpu/attention_impl.h"
#include "backend/cpu/delta_impl.h"
#include "backend/cpu/elementwise_impl.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/kv_impl.h"
#include "backend/cpu/matmul_impl.h"

namespace lily::cpu {
namespace {

constexpr Kernels make_kernels(const char* isa, const char* description) {
  return {.isa = isa,
          .description = description,
          .token_tile = 1,
          .rms_norm = rms_norm,
          .quantize = quantize,
          .matmul_decode = matmul_decode,
          .matmul_prefill = matmul_prefill,
          .matmul_exact = matmul_exact,
          .dequantize = dequantize,
          .swiglu = swiglu,
          .delta_rule = delta_rule,
          .head_norm = head_norm,
          .store_kv = store_kv,
          .attend_f32 = attend_widened<KvType::kF32>,
          .attend_bf16 = attend_widened<KvType::kBf16>,
          .attend_q8 = attend_widened<KvType::kQ8>,
          .gate_output = gate_output,
          .multiply_registers = multiply_registers,
          .multiply_registers_exact = multiply_registers_exact};
}

}  // namespace
}  // namespace lily::cpu
