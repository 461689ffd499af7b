// Products of registers with registers: what an instruction set's multiply-adds reach when no operand comes
// from memory.
#pragma once

#include "backend/cpu/matmul_parts.h"

namespace lily::cpu {
namespace {

/// Hides from the compiler that a value is the one it was, so that no product is made once for many.
template <class V>
LILY_INLINE void keep(V& value) {
#if defined(__aarch64__)
  asm volatile("" : "+w"(value));
#else
  asm volatile("" : "+v"(value));
#endif
}

Multiplied multiply_registers(std::int64_t rounds) {
  U32 codes = U32{} + 0x01010101U;
  U32 x = codes;
  I32 sums[kDotChains] = {};
  for (std::int64_t i = 0; i < rounds; ++i) {
    for (I32& sum : sums) {
      keep(codes);
      keep(x);
      sum = dot_step(sum, codes, x);
    }
  }
  Multiplied done{.count = rounds * kDotChains * 4 * kLanes, .sum = 0};
  for (const I32& sum : sums) {
    const I32 total = total_of(sum);
    for (int lane = 0; lane < kLanes; ++lane) done.sum += total[lane];
  }
  return done;
}

Multiplied multiply_registers_exact(std::int64_t rounds) {
  constexpr int kChains = 12;
  F32 weight = splat(1.0F);
  F32 x = weight;
  F32 sums[kChains] = {};
  for (std::int64_t i = 0; i < rounds; ++i) {
    for (F32& sum : sums) {
      keep(weight);
      keep(x);
      sum += weight * x;
    }
  }
  Multiplied done{.count = rounds * kChains * kLanes, .sum = 0};
  for (const F32& sum : sums) {
    for (int lane = 0; lane < kLanes; ++lane) done.sum += static_cast<double>(sum[lane]);
  }
  return done;
}

}  // namespace
}  // namespace lily::cpu
