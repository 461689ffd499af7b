// 64-bit ARM with dot products (ARMv8.2 and later; every Apple M): the integer products. See matmul_parts.h
// for what each function owes its callers.
#pragma once

#include <arm_neon.h>

#include "backend/cpu/matmul_parts.h"

namespace lily::cpu {
namespace {

LILY_INLINE U32 widen_bytes(const std::byte* p) {
  return __builtin_convertvector(load<U8>(p), U32);
}

// The eight dwords of four rows: two blocks of 4 x 4.
LILY_INLINE void transpose_rows(const std::byte* first, std::int64_t stride, int rows, int bytes,
                                U32 (&out)[8]) {
  U32 left[4] = {};
  U32 right[4] = {};
  for (int r = 0; r < 4; ++r) {
    const std::byte* row = first + (r < rows ? r : rows - 1) * stride;
    if (bytes == 32) {
      left[r] = load<U32>(row);
      right[r] = load<U32>(row + 16);
    } else {
      std::uint32_t dwords[8] = {};
      __builtin_memcpy(dwords, row, static_cast<std::size_t>(bytes));
      left[r] = load<U32>(dwords);
      right[r] = load<U32>(dwords + 4);
    }
  }
  transpose<4>(left);
  transpose<4>(right);
  for (int i = 0; i < 4; ++i) {
    out[i] = left[i];
    out[i + 4] = right[i];
  }
}

// The dot product takes signed bytes. Codes of 4 bits are that; one of 8 bits is its low seven and 128 times
// its highest.
struct SignedCodes {
  int8x16_t low;
  int8x16_t high;  ///< 8 bits only
};
template <int kBits>
LILY_INLINE SignedCodes signed_codes(uint8x16_t codes) {
  if constexpr (kBits == 4) return {vreinterpretq_s8_u8(codes), vdupq_n_s8(0)};
  return {vreinterpretq_s8_u8(vandq_u8(codes, vdupq_n_u8(0x7f))), vreinterpretq_s8_u8(vshrq_n_u8(codes, 7))};
}

struct DotSum {
  int32x4_t low = vdupq_n_s32(0);
  int32x4_t high = vdupq_n_s32(0);
};
template <int kBits>
LILY_INLINE int32x4_t total(const DotSum& sum) {
  return kBits == 4 ? sum.low : vaddq_s32(sum.low, vshlq_n_s32(sum.high, 7));
}
template <int kBits, int kLane>
LILY_INLINE void dot_lane(DotSum& sum, const U32& codes, int8x16_t x) {
  const SignedCodes c = signed_codes<kBits>(reinterpret_cast<uint8x16_t>(codes));
  sum.low = vdotq_laneq_s32(sum.low, c.low, x, kLane);
  if constexpr (kBits == 8) sum.high = vdotq_laneq_s32(sum.high, c.high, x, kLane);
}

template <int kBits, int kTokens>
LILY_INLINE void dot_tile(const Tile& tile, const std::int8_t* const (&x)[kTokens], I32 (&sum)[kTokens]) {
  DotSum acc[kTokens];
  for (int i = 0; i < 16; i += 4) {
    for (int t = 0; t < kTokens; ++t) {
      const int8x16_t v = vld1q_s8(x[t] + 4 * i);
      dot_lane<kBits, 0>(acc[t], tile.codes[i], v);
      dot_lane<kBits, 1>(acc[t], tile.codes[i + 1], v);
      dot_lane<kBits, 2>(acc[t], tile.codes[i + 2], v);
      dot_lane<kBits, 3>(acc[t], tile.codes[i + 3], v);
    }
  }
  for (int t = 0; t < kTokens; ++t) sum[t] += reinterpret_cast<I32>(total<kBits>(acc[t]));
}

constexpr int kDotChains = 12;
LILY_INLINE I32 dot_step(I32 sum, U32 codes, U32 x) {
  return reinterpret_cast<I32>(vdotq_s32(reinterpret_cast<int32x4_t>(sum), reinterpret_cast<int8x16_t>(codes),
                                         reinterpret_cast<int8x16_t>(x)));
}
LILY_INLINE I32 total_of(I32 sum) {
  return sum;
}

/// Four partial sums of one group of a row.
template <int kBits>
LILY_INLINE int32x4_t dot_group(const std::byte* row, const DecodePlane& x, std::int64_t g) {
  const auto* codes = reinterpret_cast<const std::uint8_t*>(row);
  DotSum sum;
  if constexpr (kBits == 4) {
    for (int i = 0; i < 32; i += 16) {
      const uint8x16_t pairs = vld1q_u8(codes + g * 32 + i);
      const int8x16_t even = vreinterpretq_s8_u8(vandq_u8(pairs, vdupq_n_u8(0x0f)));
      const int8x16_t odd = vreinterpretq_s8_u8(vshrq_n_u8(pairs, 4));
      sum.low = vdotq_s32(sum.low, even, vld1q_s8(x.even + g * 32 + i));
      sum.low = vdotq_s32(sum.low, odd, vld1q_s8(x.odd + g * 32 + i));
    }
  } else {
    for (int i = 0; i < 64; i += 16) {
      const SignedCodes c = signed_codes<8>(vld1q_u8(codes + g * 64 + i));
      const int8x16_t v = vld1q_s8(x.natural + g * 64 + i);
      sum.low = vdotq_s32(sum.low, c.low, v);
      sum.high = vdotq_s32(sum.high, c.high, v);
    }
  }
  return total<kBits>(sum);
}

template <int kBits, Precision kPrecision, int kRows>
LILY_INLINE void decode_rows(const WeightRows& w, const DecodeInput& x, float (&y)[kRows]) {
  F32 acc[kRows] = {};
  float bias[kRows] = {};
  for (int r = 0; r < kRows; ++r) prefetch_scales(w, r, 0);
  for (std::int64_t g = 0; g < w.groups; ++g) {
    for (int r = 0; r < kRows; ++r) {
      const std::byte* row = w.codes + r * w.code_stride;
      const float scale = bf16_at(w.scales + r * w.scale_stride + g * 2) * x.scales[g];
      if (kBits == 8 || g % 2 == 0) prefetch(w, g * kBits / 8 * kRows + r);
      int32x4_t sum = dot_group<kBits>(row, x.high, g);
      if constexpr (kPrecision == Precision::kFine) {
        sum = vaddq_s32(vshlq_n_s32(sum, 8), dot_group<kBits>(row, x.low, g));
      }
      acc[r] += reinterpret_cast<F32>(vcvtq_f32_s32(sum)) * scale;
      bias[r] += bf16_at(w.biases + r * w.scale_stride + g * 2) * x.sums[g];
    }
  }
  for (int r = 0; r < kRows; ++r) y[r] = reduce_add(acc[r]) + bias[r];
}

}  // namespace
}  // namespace lily::cpu
