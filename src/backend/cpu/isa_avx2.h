// AVX2: the integer products. See matmul_parts.h for what each function owes its callers.
#pragma once

#include <immintrin.h>

#include "backend/cpu/matmul_parts.h"

namespace lily::cpu {
namespace {

LILY_INLINE U32 widen_bytes(const std::byte* p) {
  return reinterpret_cast<U32>(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
LILY_INLINE __m256i load_256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

LILY_INLINE void transpose_rows(const std::byte* first, std::int64_t stride, int rows, int bytes,
                                U32 (&out)[8]) {
  for (int r = 0; r < 8; ++r) {
    const std::byte* row = first + (r < rows ? r : rows - 1) * stride;
    if (bytes == 32) {
      out[r] = load<U32>(row);
    } else {
      out[r] = U32{};
      __builtin_memcpy(&out[r], row, static_cast<std::size_t>(bytes));
    }
  }
  transpose<8>(out);
}

// u8 x s8 to s16 saturates: two products of 8-bit codes (255 * 127) would overflow, sixteen of 4-bit codes
// (15 * 127) do not. So 4-bit codes stay in 16 bits over half a group, and 8-bit codes are widened first.
template <int kBits>
LILY_INLINE __m256i dot_half(const U32* codes, const std::int8_t* x) {
  __m256i sum = _mm256_setzero_si256();
  for (int i = 0; i < 8; ++i) {
    std::int32_t four;
    __builtin_memcpy(&four, x + 4 * i, 4);
    const auto c = reinterpret_cast<__m256i>(codes[i]);
    if constexpr (kBits == 4) {
      sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(c, _mm256_set1_epi32(four)));
    } else {
      const __m256i even_c = _mm256_and_si256(c, _mm256_set1_epi16(0x00ff));
      const __m256i odd_c = _mm256_srli_epi16(c, 8);
      const __m256i xs = _mm256_set1_epi32(four);
      const __m256i even_x = _mm256_srai_epi16(_mm256_slli_epi16(xs, 8), 8);
      const __m256i odd_x = _mm256_srai_epi16(xs, 8);
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(even_c, even_x));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(odd_c, odd_x));
    }
  }
  return kBits == 4 ? _mm256_madd_epi16(sum, _mm256_set1_epi16(1)) : sum;
}

template <int kBits, int kTokens>
LILY_INLINE void dot_tile(const Tile& tile, const std::int8_t* const (&x)[kTokens], I32 (&sum)[kTokens]) {
  for (int t = 0; t < kTokens; ++t) {
    sum[t] += reinterpret_cast<I32>(
        _mm256_add_epi32(dot_half<kBits>(tile.codes, x[t]), dot_half<kBits>(tile.codes + 8, x[t] + 32)));
  }
}

constexpr int kDotChains = 8;
LILY_INLINE I32 dot_step(I32 sum, U32 codes, U32 x) {  // sums of 16 bits
  const __m256i products =
      _mm256_maddubs_epi16(reinterpret_cast<__m256i>(codes), reinterpret_cast<__m256i>(x));
  return reinterpret_cast<I32>(_mm256_add_epi16(reinterpret_cast<__m256i>(sum), products));
}
LILY_INLINE I32 total_of(I32 sum) {
  return reinterpret_cast<I32>(_mm256_madd_epi16(reinterpret_cast<__m256i>(sum), _mm256_set1_epi16(1)));
}

// The 32 bytes of a group of 4-bit codes; four products of at most 15 * 127 fit in 16 bits.
LILY_INLINE __m256i dot_group_4bit(__m256i codes, __m256i even, __m256i odd) {
  const __m256i nibble = _mm256_set1_epi8(0x0f);
  const __m256i low = _mm256_and_si256(codes, nibble);
  const __m256i high = _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble);
  const __m256i sum = _mm256_add_epi16(_mm256_maddubs_epi16(low, even), _mm256_maddubs_epi16(high, odd));
  return _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
}
LILY_INLINE __m256i dot_half_8bit(const std::byte* codes, const std::int8_t* x) {
  const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
  const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
  return _mm256_madd_epi16(_mm256_cvtepu8_epi16(c), _mm256_cvtepi8_epi16(v));
}

template <int kBits>
LILY_INLINE __m256i dot_group(const std::byte* row, const DecodePlane& x, std::int64_t g) {
  if constexpr (kBits == 4) {
    return dot_group_4bit(load_256(row + g * 32), load_256(x.even + g * 32), load_256(x.odd + g * 32));
  } else {
    __m256i sum = _mm256_setzero_si256();
    for (int i = 0; i < 64; i += 16) {
      sum = _mm256_add_epi32(sum, dot_half_8bit(row + g * 64 + i, x.natural + g * 64 + i));
    }
    return sum;
  }
}

template <int kBits, Precision kPrecision, int kRows>
LILY_INLINE void decode_rows(const WeightRows& w, const DecodeInput& x, float (&y)[kRows]) {
  F32 acc[kRows] = {};
  float bias[kRows] = {};
  for (int r = 0; r < kRows; ++r) prefetch_scales(w, r, 0);
  for (std::int64_t g = 0; g < w.groups; ++g) {
    for (int r = 0; r < kRows; ++r) {
      const float scale = bf16_at(w.scales + r * w.scale_stride + g * 2) * x.scales[g];
      if (kBits == 8 || g % 2 == 0) prefetch(w, g * kBits / 8 * kRows + r);
      __m256i sum = dot_group<kBits>(w.codes + r * w.code_stride, x.high, g);
      if constexpr (kPrecision == Precision::kFine) {
        const __m256i low = dot_group<kBits>(w.codes + r * w.code_stride, x.low, g);
        sum = _mm256_add_epi32(_mm256_slli_epi32(sum, 8), low);
      }
      acc[r] += reinterpret_cast<F32>(_mm256_cvtepi32_ps(sum)) * scale;
      bias[r] += bf16_at(w.biases + r * w.scale_stride + g * 2) * x.sums[g];
    }
  }
  for (int r = 0; r < kRows; ++r) y[r] = reduce_add(acc[r]) + bias[r];
}

}  // namespace
}  // namespace lily::cpu
