// AVX-512 with VNNI: the integer products. See matmul_parts.h for what each function owes its callers.
#pragma once

#include <immintrin.h>

#include "backend/cpu/matmul_parts.h"

namespace lily::cpu {
namespace {

LILY_INLINE __mmask16 first_lanes(std::int64_t n) {
  return static_cast<__mmask16>((1U << n) - 1U);
}
LILY_INLINE F32 load_bf16_masked(__mmask16 mask, const std::byte* p) {
  const __m256i bits = _mm256_maskz_loadu_epi16(mask, p);
  return reinterpret_cast<F32>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// Rows r and r + 8 share a register, so the 8 x 8 transposition runs on both halves at once.
LILY_INLINE void transpose_rows(const std::byte* first, std::int64_t stride, int rows, int bytes,
                                U32 (&out)[8]) {
  const auto mask = static_cast<__mmask16>((1U << (bytes / 2)) - 1U);
  for (int r = 0; r < 8; ++r) {
    const int low = r < rows ? r : rows - 1;
    const int high = r + 8 < rows ? r + 8 : rows - 1;
    const __m256i a = _mm256_maskz_loadu_epi16(mask, first + low * stride);
    const __m256i b = _mm256_maskz_loadu_epi16(mask, first + high * stride);
    out[r] = reinterpret_cast<U32>(_mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1));
  }
  transpose<8>(out);
}

template <int kBits, int kTokens>
LILY_INLINE void dot_tile(const Tile& tile, const std::int8_t* const (&x)[kTokens], I32 (&sum)[kTokens]) {
  __m512i acc[kTokens];
  for (int t = 0; t < kTokens; ++t) acc[t] = _mm512_setzero_si512();
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    const auto codes = reinterpret_cast<__m512i>(tile.codes[i]);
    for (int t = 0; t < kTokens; ++t) {
      std::int32_t four;
      __builtin_memcpy(&four, x[t] + 4 * i, 4);
      acc[t] = _mm512_dpbusd_epi32(acc[t], codes, _mm512_set1_epi32(four));
    }
  }
  for (int t = 0; t < kTokens; ++t) sum[t] = reinterpret_cast<I32>(acc[t]);
}

/// Lane l of entry p: 2 p + l / 8, which spreads the factors of groups 2 p and 2 p + 1 over the lanes of
/// their codes.
struct PairIndex {
  alignas(64) std::int32_t lanes[8][16];
};
constexpr PairIndex make_pair_index() {
  PairIndex index{};
  for (int p = 0; p < 8; ++p) {
    for (int l = 0; l < 16; ++l) index.lanes[p][l] = 2 * p + l / 8;
  }
  return index;
}
constexpr PairIndex kPairIndex = make_pair_index();

// 64 bytes of 4-bit codes are two groups: lanes 0..7 sum group 2 p, lanes 8..15 group 2 p + 1.
LILY_INLINE F32 dot_pair(__m512i codes, __m512i even, __m512i odd) {
  const __m512i nibble = _mm512_set1_epi8(0x0f);
  const __m512i low = _mm512_and_si512(codes, nibble);
  const __m512i high = _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble);
  const __m512i sum = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), low, even), high, odd);
  return reinterpret_cast<F32>(_mm512_cvtepi32_ps(sum));
}
LILY_INLINE F32 spread(F32 factors, const std::int32_t* index) {
  return reinterpret_cast<F32>(
      _mm512_permutexvar_ps(_mm512_load_si512(index), reinterpret_cast<__m512>(factors)));
}

template <int kRows>
LILY_INLINE void accumulate_4bit(const WeightRows& w, const DecodeInput& x, std::int64_t g0, std::int64_t n,
                                 const F32 (&factors)[kRows], F32 (&acc)[kRows]) {
  std::int64_t g = 0;
  for (; g + 2 <= n; g += 2) {
    const __m512i even = _mm512_loadu_si512(x.even + (g0 + g) * 32);
    const __m512i odd = _mm512_loadu_si512(x.odd + (g0 + g) * 32);
    for (int r = 0; r < kRows; ++r) {
      const __m512i codes = _mm512_loadu_si512(w.codes + r * w.code_stride + (g0 + g) * 32);
      acc[r] += dot_pair(codes, even, odd) * spread(factors[r], kPairIndex.lanes[g / 2]);
    }
  }
  if (g == n) return;
  const __mmask16 half = 0x00ff;  // the last group of an odd number
  const __m512i even = _mm512_maskz_loadu_epi32(half, x.even + (g0 + g) * 32);
  const __m512i odd = _mm512_maskz_loadu_epi32(half, x.odd + (g0 + g) * 32);
  for (int r = 0; r < kRows; ++r) {
    const __m512i codes = _mm512_maskz_loadu_epi32(half, w.codes + r * w.code_stride + (g0 + g) * 32);
    acc[r] += dot_pair(codes, even, odd) * spread(factors[r], kPairIndex.lanes[g / 2]);
  }
}

template <int kRows>
LILY_INLINE void accumulate_8bit(const WeightRows& w, const DecodeInput& x, std::int64_t g0, std::int64_t n,
                                 const F32 (&factors)[kRows], F32 (&acc)[kRows]) {
  for (std::int64_t g = 0; g < n; ++g) {
    const __m512i codes_x = _mm512_loadu_si512(x.natural + (g0 + g) * 64);
    const __m512i lane = _mm512_set1_epi32(static_cast<int>(g));
    for (int r = 0; r < kRows; ++r) {
      const __m512i codes = _mm512_loadu_si512(w.codes + r * w.code_stride + (g0 + g) * 64);
      const __m512i sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes, codes_x);
      const auto factor =
          reinterpret_cast<F32>(_mm512_permutexvar_ps(lane, reinterpret_cast<__m512>(factors[r])));
      acc[r] += reinterpret_cast<F32>(_mm512_cvtepi32_ps(sum)) * factor;
    }
  }
}

// Sixteen groups at a time: their scales fill one register. Lanes are only summed at the end, so the bias
// terms, one lane a group, go into the same accumulator.
template <int kBits, int kRows>
LILY_INLINE void decode_rows(const WeightRows& w, const DecodeInput& x, float (&y)[kRows]) {
  F32 acc[kRows] = {};
  for (std::int64_t g0 = 0; g0 < w.groups; g0 += 16) {
    const std::int64_t n = w.groups - g0 < 16 ? w.groups - g0 : 16;
    const __mmask16 mask = first_lanes(n);
    const auto scales = reinterpret_cast<F32>(_mm512_maskz_loadu_ps(mask, x.scales + g0));
    const auto sums = reinterpret_cast<F32>(_mm512_maskz_loadu_ps(mask, x.sums + g0));
    F32 factors[kRows];
    for (int r = 0; r < kRows; ++r) {
      factors[r] = load_bf16_masked(mask, w.scales + r * w.scale_stride + g0 * 2) * scales;
      acc[r] += load_bf16_masked(mask, w.biases + r * w.scale_stride + g0 * 2) * sums;
    }
    if constexpr (kBits == 4) {
      accumulate_4bit(w, x, g0, n, factors, acc);
    } else {
      accumulate_8bit(w, x, g0, n, factors, acc);
    }
  }
  for (int r = 0; r < kRows; ++r) y[r] = reduce_add(acc[r]);
}

}  // namespace
}  // namespace lily::cpu
