// K and V rows: into the cache, and widened to f32 out of it. kernels.h has the layout.
#pragma once

#include "backend/cpu/kernels.h"
#include "backend/cpu/vector_impl.h"

namespace lily::cpu {
namespace {

constexpr int kHeadSize = 256;
constexpr int kBlockRows = static_cast<int>(kKvBlockRows);
constexpr int kScaledBy = 64;  // int8 values that share a scale
constexpr int kWordLanes = 16;
static_assert(kWordLanes % kLanes == 0);

typedef std::int8_t KvCodes __attribute__((vector_size(kLanes)));

template <KvType kType>
constexpr int kWordValues = kType == KvType::kF32 ? 1 : (kType == KvType::kBf16 ? 2 : 4);
template <KvType kType>
constexpr std::int64_t kScalesAt = static_cast<std::int64_t>(kHeadSize) * kBlockRows * 4 / kWordValues<kType>;

/// Bytes from the start of a block to element `d` of row `r`.
template <KvType kType>
LILY_INLINE std::int64_t kv_offset(bool value, int r, int d) {
  constexpr int n = kWordValues<kType>;
  const int word = value ? (d / kWordLanes * (kBlockRows / n) + r / n) * kWordLanes + d % kWordLanes
                         : d / n * kBlockRows + r;
  return (static_cast<std::int64_t>(word) * n + (value ? r : d) % n) * (4 / n);
}

template <KvType kType, class Element>
LILY_INLINE void scatter_row(const StoreKvArgs& a, const Element* row) {
  std::byte* block = a.blocks + a.index / kBlockRows * kv_block_bytes(kType);
  const int r = static_cast<int>(a.index % kBlockRows);
  for (int d = 0; d < kHeadSize; ++d) store(block + kv_offset<kType>(a.value, r, d), row[d]);
}

LILY_INLINE float quantize_kv(const float* x, std::int8_t* codes) {
  F32 largest = F32{};
  for (int i = 0; i < kScaledBy; i += kLanes) {
    const F32 v = load_f32(x + i);
    largest = max(largest, max(v, -v));
  }
  const float absmax = reduce_max(largest);
  const float inverse = absmax > 0 ? 127.0F / absmax : 0.0F;
  constexpr float kToInteger = 12582912.0F;  // 1.5 * 2^23: adding it rounds to nearest even
  for (int i = 0; i < kScaledBy; i += kLanes) {
    const I32 rounded = as_i32(load_f32(x + i) * inverse + kToInteger) - 0x4b400000;
    store(codes + i, __builtin_convertvector(rounded, KvCodes));
  }
  return absmax / 127.0F;
}

void store_q8(const StoreKvArgs& a) {
  std::int8_t codes[kHeadSize];
  std::byte* block = a.blocks + a.index / kBlockRows * kv_block_bytes(KvType::kQ8);
  for (int g = 0; g < kHeadSize / kScaledBy; ++g) {
    const float scale = quantize_kv(a.row + g * kScaledBy, codes + g * kScaledBy);
    store(block + kScalesAt<KvType::kQ8> + (g * kBlockRows + a.index % kBlockRows) * 4, scale);
  }
  scatter_row<KvType::kQ8>(a, codes);
}

void store_kv(const StoreKvArgs& a) {
  if (a.type == KvType::kQ8) return store_q8(a);
  if (a.type == KvType::kF32) return scatter_row<KvType::kF32>(a, a.row);
  std::uint16_t rounded[kHeadSize];
  for (int d = 0; d < kHeadSize; d += kLanes) store(rounded + d, to_bf16(load_f32(a.row + d)));
  scatter_row<KvType::kBf16>(a, rounded);
}

/// Value i of every word.
template <KvType kType>
LILY_INLINE F32 widen_word(U32 words, int i) {
  if constexpr (kType == KvType::kF32) return as_f32(words);
  if constexpr (kType == KvType::kBf16) return as_f32(i == 0 ? words << 16 : words & 0xffff0000U);
  return __builtin_convertvector(reinterpret_cast<I32>(words << (24 - 8 * i)) >> 24, F32);
}

/// A block of keys as out[element * stride + row].
template <KvType kType>
LILY_INLINE void widen_keys(const std::byte* block, float* out, std::int64_t stride) {
  constexpr int n = kWordValues<kType>;
  const std::byte* scales = block + kScalesAt<kType>;
  for (int w = 0; w < kHeadSize / n; ++w) {
    for (int r = 0; r < kBlockRows; r += kLanes) {
      const U32 words = load<U32>(block + (w * kBlockRows + r) * 4);
      for (int i = 0; i < n; ++i) {
        F32 x = widen_word<kType>(words, i);
        if constexpr (kType == KvType::kQ8) {
          x *= load<F32>(scales + (w * n / kScaledBy * kBlockRows + r) * 4);
        }
        store(out + (w * n + i) * stride + r, x);
      }
    }
  }
}

/// A block of values as out[row][256]; rows from `rows` on are zero.
template <KvType kType>
LILY_INLINE void widen_values(const std::byte* block, std::int64_t rows, float* out) {
  constexpr int n = kWordValues<kType>;
  constexpr int kWords = kBlockRows / n;
  const std::byte* scales = block + kScalesAt<kType>;
  for (int d = 0; d < kHeadSize; d += kLanes) {
    for (int w = 0; w < kWords; ++w) {
      const int word = (d / kWordLanes * kWords + w) * kWordLanes + d % kWordLanes;
      const U32 words = load<U32>(block + word * 4);
      for (int i = 0; i < n; ++i) {
        const int row = w * n + i;
        F32 x = widen_word<kType>(words, i);
        if constexpr (kType == KvType::kQ8) {
          x *= load<float>(scales + (d / kScaledBy * kBlockRows + row) * 4);
        }
        store(out + row * kHeadSize + d, row < rows ? x : F32{});
      }
    }
  }
}

}  // namespace
}  // namespace lily::cpu
