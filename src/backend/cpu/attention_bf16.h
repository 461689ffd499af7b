// Attention with the bf16 dot products of AVX512_BF16: twice the multiply-adds of f32 an instruction, on keys
// and values as they lie in the cache. Queries and probabilities are rounded to bf16, as keys and values were
// before.
#pragma once

#include <immintrin.h>

#include "backend/cpu/attention_impl.h"

namespace lily::cpu {
namespace {

/// acc + a.low * b.low + a.high * b.high of every word.
LILY_INLINE F32 dot_bf16(F32 acc, U32 a, U32 b) {
  return reinterpret_cast<F32>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(acc), reinterpret_cast<__m512bh>(a),
                                                reinterpret_cast<__m512bh>(b)));
}

struct Bf16Products {
  static constexpr int kQueryWords = kHeadSize / 2;
  static constexpr int kRowWords = kTileSize / 2;
  static constexpr int kBlockWords = kBlockRows / 2;
  static constexpr std::int64_t kBlockBytes = kv_block_bytes(KvType::kBf16);
  static constexpr int kQueries =
      8;  // chains of sums: as many as an instruction is deep, and a row of them fits

  std::int64_t padded;
  std::uint32_t* queries;        ///< scratch, [padded][kQueryWords]
  std::uint32_t* probabilities;  ///< scratch, [padded][kRowWords]
  std::byte* last;               ///< scratch, a tile of values

  Bf16Products(const AttendArgs& a, std::int64_t padded_count, float* scratch)
      : padded(padded_count),
        queries(reinterpret_cast<std::uint32_t*>(scratch)),
        probabilities(queries + kAttentionQueries * kQueryWords),
        last(reinterpret_cast<std::byte*>(probabilities + kAttentionQueries * kRowWords)) {
    for (std::int64_t i = 0; i < padded * kHeadSize; i += kLanes) {
      store(reinterpret_cast<std::byte*>(queries) + i * 2, to_bf16(load_f32(a.queries + i)));
    }
  }

  LILY_INLINE void score(const KvTile& tile, float* scores) const {
    for (int b = 0; b < kTileSize / kBlockRows; ++b) {
      const std::byte* keys = tile.keys + b * kBlockBytes;
      const std::byte* values = tile.values + b * kBlockBytes;
      for (std::int64_t m = 0; m < padded; m += kQueries) {
        F32 acc[kQueries] = {};
        const std::uint32_t* q = queries + m * kQueryWords;
        for (int w = 0; w < kQueryWords; ++w) {
          // The values come next, in another order than they lie.
          if (m == 0) __builtin_prefetch(values + w * 64, 0, 2);
          const auto k = load<U32>(keys + w * 64);
          for (int i = 0; i < kQueries; ++i) acc[i] = dot_bf16(acc[i], U32{} + q[i * kQueryWords + w], k);
        }
        for (int i = 0; i < kQueries; ++i) store(scores + (m + i) * kTileSize + b * kBlockRows, acc[i]);
      }
    }
  }

  LILY_INLINE void add(const KvTile& tile, const float* p, float* sums) const {
    for (std::int64_t i = 0; i < padded * kTileSize; i += kLanes) {
      store(reinterpret_cast<std::byte*>(probabilities) + i * 2, to_bf16(load_f32(p + i)));
    }
    const std::byte* values = tile.rows == kTileSize ? tile.values : whole_tile(tile);
    for (int part = 0; part < kHeadSize / kWordLanes; ++part) {
      for (std::int64_t m = 0; m < padded; m += kQueries) {
        const std::byte* ahead = m == 0 ? tile.next_keys + part * (kTileSize / 2) * 64 : nullptr;
        add_part(values + part * kBlockWords * 64, m, sums + m * kHeadSize + part * kWordLanes, ahead);
      }
    }
  }

 private:
  LILY_INLINE void add_part(const std::byte* values, std::int64_t m, float* sums,
                            const std::byte* ahead) const {
    F32 acc[kQueries];
    for (int i = 0; i < kQueries; ++i) acc[i] = load_f32(sums + i * kHeadSize);
    for (int b = 0; b < kTileSize / kBlockRows; ++b) {
      const std::uint32_t* p = probabilities + m * kRowWords + b * kBlockWords;
      for (int w = 0; w < kBlockWords; ++w) {
        if (ahead != nullptr) __builtin_prefetch(ahead + (b * kBlockWords + w) * 64, 0, 2);
        const auto v = load<U32>(values + b * kBlockBytes + w * 64);
        for (int i = 0; i < kQueries; ++i) acc[i] = dot_bf16(acc[i], U32{} + p[i * kRowWords + w], v);
      }
    }
    for (int i = 0; i < kQueries; ++i) store(sums + i * kHeadSize, acc[i]);
  }

  /// What lies past the last row may be anything, and zero times that is not zero.
  LILY_INLINE const std::byte* whole_tile(const KvTile& tile) const {
    for (std::int64_t b = 0; b < kTileSize / kBlockRows; ++b) {
      for (int word = 0; word < kHeadSize * kBlockWords; word += kLanes) {
        const std::int64_t row = b * kBlockRows + word / kWordLanes % kBlockWords * 2;
        const std::int64_t at = b * kBlockBytes + word * 4;
        const std::uint32_t mask = row + 1 < tile.rows ? 0xffffffffU : (row < tile.rows ? 0xffffU : 0U);
        store(last + at, mask != 0 ? load<U32>(tile.values + at) & mask : U32{});
      }
    }
    return last;
  }
};
static_assert(kAttentionQueries * (Bf16Products::kQueryWords + Bf16Products::kRowWords) +
                  kTileSize * kHeadSize / 2 <=
              attend_scratch() - kAttentionQueries * kTileSize);

void attend_bf16(const AttendArgs& args) {
  attend_tiles<KvType::kBf16, Bf16Products>(args);
}

}  // namespace
}  // namespace lily::cpu
