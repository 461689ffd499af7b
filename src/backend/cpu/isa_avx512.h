// AVX-512 with VNNI: the integer products. See matmul_parts.h for what each function owes its callers.
#pragma once

#include <immintrin.h>

#include "backend/cpu/matmul_parts.h"

namespace lily::cpu {
namespace {

LILY_INLINE U32 widen_bytes(const std::byte* p) {
  return reinterpret_cast<U32>(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

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
  for (int t = 0; t < kTokens; ++t) acc[t] = reinterpret_cast<__m512i>(sum[t]);
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

constexpr int kDotChains = 12;
LILY_INLINE I32 dot_step(I32 sum, U32 codes, U32 x) {
  return reinterpret_cast<I32>(_mm512_dpbusd_epi32(
      reinterpret_cast<__m512i>(sum), reinterpret_cast<__m512i>(codes), reinterpret_cast<__m512i>(x)));
}
LILY_INLINE I32 total_of(I32 sum) {
  return sum;
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

/// 64 bytes into a register, in program order: left to itself the compiler reads unaligned codes twice, as
/// operands of two instructions, and gathers the prefetches of an unrolled loop into a burst that blocks the
/// loads behind it.
LILY_INLINE __m512i load_once(const void* p) {
  __m512i v = _mm512_loadu_si512(p);
  asm volatile("" : "+v"(v) : : "memory");
  return v;
}

/// The activations that meet 64 bytes of 4-bit codes.
struct PairInput {
  __m512i even;
  __m512i odd;
  __m512i even_low;  // fine only, as is the next
  __m512i odd_low;
};

// 64 bytes of 4-bit codes are two groups: lanes 0..7 sum group 2 p, lanes 8..15 group 2 p + 1.
template <Precision kPrecision>
LILY_INLINE F32 dot_pair(__m512i codes, const PairInput& x) {
  const __m512i nibble = _mm512_set1_epi8(0x0f);
  const __m512i first = _mm512_and_si512(codes, nibble);
  const __m512i second = _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble);
  __m512i sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), first, x.even);
  sum = _mm512_dpbusd_epi32(sum, second, x.odd);
  if constexpr (kPrecision == Precision::kFine) {
    sum = _mm512_dpbusd_epi32(_mm512_slli_epi32(sum, 8), first, x.even_low);
    sum = _mm512_dpbusd_epi32(sum, second, x.odd_low);
  }
  return reinterpret_cast<F32>(_mm512_cvtepi32_ps(sum));
}
LILY_INLINE F32 spread(F32 factors, const std::int32_t* index) {
  return reinterpret_cast<F32>(
      _mm512_permutexvar_ps(_mm512_load_si512(index), reinterpret_cast<__m512>(factors)));
}

/// What a few rows and one token have in common over groups [group, group + n), n <= 16: a lane a group.
template <int kRows>
struct Factors {
  LILY_INLINE Factors(const WeightRows& w, const DecodeInput& x, std::int64_t group, __mmask16 mask,
                      F32 (&acc)[kRows]) {
    const auto x_scales = reinterpret_cast<F32>(_mm512_maskz_loadu_ps(mask, x.scales + group));
    const auto x_sums = reinterpret_cast<F32>(_mm512_maskz_loadu_ps(mask, x.sums + group));
    for (int r = 0; r < kRows; ++r) {
      prefetch_scales(w, r, group);
      of_row[r] = load_bf16_masked(mask, w.scales + r * w.scale_stride + group * 2) * x_scales;
      // Lanes are only summed at the end, so the bias terms go into the same accumulator.
      acc[r] += load_bf16_masked(mask, w.biases + r * w.scale_stride + group * 2) * x_sums;
    }
  }
  F32 of_row[kRows];
};

// Groups [group, group + 2 kPairs), unrolled: with counters and addresses computed in the loop the compiler
// ran out of registers, and the loop took three times as long.
template <Precision kPrecision, int kPairs, int kRows>
LILY_INLINE void accumulate_pairs(const WeightRows& w, const DecodeInput& x, std::int64_t group,
                                  F32 (&acc)[kRows]) {
  const Factors<kRows> factors(w, x, group, first_lanes(2 * kPairs), acc);
  const std::byte* codes = w.codes + group * 32;
  const std::byte* ahead = w.codes + kPrefetchBytes + group / 2 * kRows * 64;
#pragma GCC unroll 8
  for (int p = 0; p < kPairs; ++p) {
    PairInput input;
    input.even = load_once(x.high.even + group * 32 + p * 64);
    input.odd = load_once(x.high.odd + group * 32 + p * 64);
    if constexpr (kPrecision == Precision::kFine) {
      input.even_low = load_once(x.low.even + group * 32 + p * 64);
      input.odd_low = load_once(x.low.odd + group * 32 + p * 64);
    }
    for (int r = 0; r < kRows; ++r) {
      __builtin_prefetch(ahead + (p * kRows + r) * 64);
      const __m512i row = load_once(codes + r * w.code_stride + p * 64);
      acc[r] += dot_pair<kPrecision>(row, input) * spread(factors.of_row[r], kPairIndex.lanes[p]);
    }
  }
}

/// One group: half a register.
template <Precision kPrecision, int kRows>
LILY_INLINE void accumulate_group(const WeightRows& w, const DecodeInput& x, std::int64_t group,
                                  F32 (&acc)[kRows]) {
  const Factors<kRows> factors(w, x, group, first_lanes(1), acc);
  const __mmask16 half = 0x00ff;
  PairInput input;
  input.even = _mm512_maskz_loadu_epi32(half, x.high.even + group * 32);
  input.odd = _mm512_maskz_loadu_epi32(half, x.high.odd + group * 32);
  input.even_low = _mm512_maskz_loadu_epi32(half, x.low.even + group * 32);
  input.odd_low = _mm512_maskz_loadu_epi32(half, x.low.odd + group * 32);
  for (int r = 0; r < kRows; ++r) {
    const __m512i row = _mm512_maskz_loadu_epi32(half, w.codes + r * w.code_stride + group * 32);
    acc[r] += dot_pair<kPrecision>(row, input) * spread(factors.of_row[r], kPairIndex.lanes[0]);
  }
}

template <Precision kPrecision, int kRows>
LILY_INLINE void accumulate_8bit(const WeightRows& w, const DecodeInput& x, std::int64_t group,
                                 std::int64_t n, F32 (&acc)[kRows]) {
  const Factors<kRows> factors(w, x, group, first_lanes(n), acc);
  for (std::int64_t g = 0; g < n; ++g) {
    const __m512i high = load_once(x.high.natural + (group + g) * 64);
    const __m512i low = load_once(x.low.natural + (group + g) * 64);
    const __m512i lane = _mm512_set1_epi32(static_cast<int>(g));
    for (int r = 0; r < kRows; ++r) {
      prefetch(w, (group + g) * kRows + r);
      const __m512i codes = load_once(w.codes + r * w.code_stride + (group + g) * 64);
      __m512i sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes, high);
      if constexpr (kPrecision == Precision::kFine) {
        sum = _mm512_dpbusd_epi32(_mm512_slli_epi32(sum, 8), codes, low);
      }
      const __m512 factor = _mm512_permutexvar_ps(lane, reinterpret_cast<__m512>(factors.of_row[r]));
      acc[r] += reinterpret_cast<F32>(_mm512_cvtepi32_ps(sum)) * reinterpret_cast<F32>(factor);
    }
  }
}

template <int kBits, Precision kPrecision, int kRows>
__attribute__((noinline)) void decode_rows(const WeightRows& rows, const DecodeInput& input,
                                           float (&y)[kRows]) {
  const WeightRows w = rows;
  const DecodeInput x = input;
  F32 acc[kRows] = {};
  std::int64_t g = 0;
  if constexpr (kBits == 4) {
    for (; g + 16 <= w.groups; g += 16) accumulate_pairs<kPrecision, 8>(w, x, g, acc);
    if (g + 8 <= w.groups) {
      accumulate_pairs<kPrecision, 4>(w, x, g, acc);
      g += 8;
    }
    for (; g + 2 <= w.groups; g += 2) accumulate_pairs<kPrecision, 1>(w, x, g, acc);
    if (g < w.groups) accumulate_group<kPrecision>(w, x, g, acc);
  } else {
    for (; g < w.groups; g += 16)
      accumulate_8bit<kPrecision>(w, x, g, w.groups - g < 16 ? w.groups - g : 16, acc);
  }
  for (int r = 0; r < kRows; ++r) y[r] = reduce_add(acc[r]);
}

}  // namespace
}  // namespace lily::cpu
