// Any CPU: the integer products in the compiler's vector extension. See matmul_parts.h for what each function
// owes its callers.
#pragma once

#include "backend/cpu/matmul_parts.h"

namespace lily::cpu {
namespace {

typedef std::int16_t I16 __attribute__((vector_size(4 * kLanes)));

LILY_INLINE U32 widen_bytes(const std::byte* p) {
  return __builtin_convertvector(load<U8>(p), U32);
}

LILY_INLINE void transpose_rows(const std::byte* first, std::int64_t stride, int rows, int bytes,
                                U32 (&out)[8]) {
  std::uint32_t dwords[kLanes][8] = {};
  for (int r = 0; r < kLanes; ++r) {
    const std::byte* row = first + (r < rows ? r : rows - 1) * stride;
    __builtin_memcpy(dwords[r], row, static_cast<std::size_t>(bytes));
  }
  for (int i = 0; i < 8; ++i) {
    for (int r = 0; r < kLanes; ++r) out[i][r] = dwords[r][i];
  }
}

// Products of a byte code and an int8 fit in 16 bits (255 * 127); their sums need 32. `codes` and `x` hold
// two values of 16 bits in each dword.
LILY_INLINE I32 dot_two(U32 codes, U32 x) {
  const auto products = reinterpret_cast<I32>(reinterpret_cast<I16>(codes) * reinterpret_cast<I16>(x));
  return ((products << 16) >> 16) + (products >> 16);
}
LILY_INLINE U32 splat_two(std::int8_t low, std::int8_t high) {
  const auto a = static_cast<std::uint32_t>(static_cast<std::uint16_t>(low));
  const auto b = static_cast<std::uint32_t>(static_cast<std::uint16_t>(high));
  return U32{} + (a | (b << 16));
}

template <int kBits, int kTokens>
LILY_INLINE void dot_tile(const Tile& tile, const std::int8_t* const (&x)[kTokens], I32 (&sum)[kTokens]) {
  for (int t = 0; t < kTokens; ++t) {
    for (int i = 0; i < 16; ++i) {
      const std::int8_t* four = x[t] + 4 * i;
      const U32 codes = tile.codes[i];
      sum[t] += dot_two(codes & 0x00ff00ffU, splat_two(four[0], four[2]));
      sum[t] += dot_two((codes >> 8) & 0x00ff00ffU, splat_two(four[1], four[3]));
    }
  }
}

constexpr int kDotChains = 4;
LILY_INLINE I32 dot_step(I32 sum, U32 codes, U32 x) {
  sum += dot_two(codes & 0x00ff00ffU, x & 0x00ff00ffU);
  return sum + dot_two((codes >> 8) & 0x00ff00ffU, (x >> 8) & 0x00ff00ffU);
}
LILY_INLINE I32 total_of(I32 sum) {
  return sum;
}

template <int kBits>
LILY_INLINE std::int32_t dot_group(const std::byte* codes, const DecodePlane& x, std::int64_t g) {
  std::int32_t sum = 0;
  if constexpr (kBits == 4) {
    for (int i = 0; i < 32; ++i) {
      const auto byte = static_cast<std::int32_t>(codes[g * 32 + i]);
      sum += (byte & 15) * x.even[g * 32 + i] + (byte >> 4) * x.odd[g * 32 + i];
    }
  } else {
    for (int i = 0; i < 64; ++i) sum += static_cast<std::int32_t>(codes[g * 64 + i]) * x.natural[g * 64 + i];
  }
  return sum;
}

template <int kBits, Precision kPrecision, int kRows>
LILY_INLINE void decode_rows(const WeightRows& w, const DecodeInput& x, float (&y)[kRows]) {
  for (int r = 0; r < kRows; ++r) {
    y[r] = 0;
    for (std::int64_t g = 0; g < w.groups; ++g) {
      const float scale = bf16_at(w.scales + r * w.scale_stride + g * 2) * x.scales[g];
      const float bias = bf16_at(w.biases + r * w.scale_stride + g * 2);
      std::int32_t sum = dot_group<kBits>(w.codes + r * w.code_stride, x.high, g);
      if constexpr (kPrecision == Precision::kFine) {
        sum = sum * 256 + dot_group<kBits>(w.codes + r * w.code_stride, x.low, g);
      }
      y[r] += scale * static_cast<float>(sum);
      y[r] += bias * x.sums[g];
    }
  }
}

}  // namespace
}  // namespace lily::cpu
