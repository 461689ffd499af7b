// Attention over an int8 cache with the integer dot products of VNNI, on codes as they lie in the cache.
//
// Queries become 16-bit codes in two planes, a scale for 64 elements, as the activations of products do; then
// a score is a sum over the four groups of 64 of  q_scale k_scale (q . k). The scale of a value row belongs
// to its row, so it goes into the probability: p' = p v_scale is coded in 16 bits against the largest p' of a
// tile, once a group of elements, and the tile's sum is p_scale (p' . v).
#pragma once

#include <immintrin.h>

#include "backend/cpu/attention_impl.h"

namespace lily::cpu {
namespace {

struct Q8Products {
  static constexpr int kGroups = kHeadSize / kScaledBy;
  static constexpr int kWords = kHeadSize / 4;        // of a query, or of a block's keys
  static constexpr int kGroupWords = kScaledBy / 4;   // of a group of elements, or of a tile's rows
  static constexpr int kBlockWords = kBlockRows / 4;  // of a block's values of one element
  static constexpr int kQueries = 8;
  static constexpr std::int64_t kBlockBytes = kv_block_bytes(KvType::kQ8);
  static_assert(kTileSize == kScaledBy);

  /// 16-bit codes of 64 numbers, 256 high + low, as words of 4.
  struct Codes {
    std::int32_t high[kGroupWords];
    std::int32_t low[kGroupWords];
    float scale;
    std::int32_t offset;  ///< queries: -128 times the sum of the codes
  };

  std::int64_t padded;
  Codes* queries;        ///< scratch, [padded][kGroups]
  Codes* probabilities;  ///< scratch, [padded][kGroups]

  Q8Products(const AttendArgs& a, std::int64_t padded_count, float* scratch)
      : padded(padded_count),
        queries(reinterpret_cast<Codes*>(scratch)),
        probabilities(queries + kAttentionQueries * kGroups) {
    for (std::int64_t i = 0; i < padded * kGroups; ++i) encode_query(a.queries + i * kScaledBy, queries[i]);
  }

  LILY_INLINE void score(const KvTile& tile, float* scores) const {
    for (int b = 0; b < kTileSize / kBlockRows; ++b) {
      const std::byte* keys = tile.keys + b * kBlockBytes;
      for (std::int64_t m = 0; m < padded; m += kQueries) {
        // The values come next, in another order than they lie.
        score_block(keys, m, scores + m * kTileSize + b * kBlockRows,
                    m == 0 ? tile.values + b * kBlockBytes : nullptr);
      }
    }
  }

  LILY_INLINE void add(const KvTile& tile, const float* p, float* sums) const {
    for (int g = 0; g < kGroups; ++g) {
      F32 scales[kTileSize / kLanes];
      for (int b = 0; b < kTileSize / kBlockRows; ++b) {
        const I32 row = iota() + b * kBlockRows;
        const F32 s = load<F32>(tile.values + b * kBlockBytes + kScalesAt<KvType::kQ8> + g * kBlockRows * 4);
        scales[b] = row < static_cast<std::int32_t>(tile.rows) ? s : F32{};
      }
      for (std::int64_t i = 0; i < padded; ++i) {
        encode_probabilities(p + i * kTileSize, scales, probabilities[i * kGroups + g]);
      }
    }
    for (int part = 0; part < kHeadSize / kWordLanes; ++part) {
      const std::byte* ahead = tile.next_keys + part * (kTileSize / 4) * 64;
      for (std::int64_t m = 0; m < padded; m += kQueries) {
        add_part(tile.values, part, m, sums + m * kHeadSize + part * kWordLanes, m == 0 ? ahead : nullptr);
      }
    }
  }

 private:
  LILY_INLINE static __m512i dot(__m512i acc, __m512i unsigned_codes, __m512i signed_codes) {
    return _mm512_dpbusd_epi32(acc, unsigned_codes, signed_codes);
  }
  LILY_INLINE static __m512i splat_word(std::int32_t word) { return _mm512_set1_epi32(word); }

  LILY_INLINE static void store_low_bytes(void* p, I32 x) {
    _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_cvtepi32_epi8(reinterpret_cast<__m512i>(x)));
  }

  LILY_INLINE static void encode_query(const float* x, Codes& out) {
    F32 largest = F32{};
    for (int i = 0; i < kScaledBy; i += kLanes) {
      const F32 v = load_f32(x + i);
      largest = max(largest, max(v, -v));
    }
    const float absmax = reduce_max(largest);
    const float inverse = absmax > 0 ? 127.0F * 256.0F / absmax : 0.0F;
    I32 total = I32{};
    for (int i = 0; i < kScaledBy; i += kLanes) {
      const auto codes =
          reinterpret_cast<I32>(_mm512_cvtps_epi32(reinterpret_cast<__m512>(load_f32(x + i) * inverse)));
      const I32 high = (codes + 128) >> 8;
      store_low_bytes(out.high + i / 4, high);
      store_low_bytes(out.low + i / 4, codes - (high << 8));
      total += codes;
    }
    out.scale = absmax / (127.0F * 256.0F);
    out.offset = -128 * _mm512_reduce_add_epi32(reinterpret_cast<__m512i>(total));
  }

  /// Unsigned planes: nothing is below zero here.
  LILY_INLINE static void encode_probabilities(const float* p, const F32 (&scales)[kTileSize / kLanes],
                                               Codes& out) {
    constexpr int kVectors = kTileSize / kLanes;
    F32 scaled[kVectors];
    F32 largest = F32{};
    for (int i = 0; i < kVectors; ++i) {
      scaled[i] = load_f32(p + i * kLanes) * scales[i];
      largest = max(largest, scaled[i]);
    }
    const float most = reduce_max(largest);
    const float inverse = most > 0 ? 65535.0F / most : 0.0F;
    for (int i = 0; i < kVectors; ++i) {
      const auto codes =
          reinterpret_cast<I32>(_mm512_cvtps_epi32(reinterpret_cast<__m512>(scaled[i] * inverse)));
      store_low_bytes(out.high + i * kLanes / 4, codes >> 8);
      store_low_bytes(out.low + i * kLanes / 4, codes);
    }
    out.scale = most / 65535.0F;
  }

  LILY_INLINE void score_block(const std::byte* keys, std::int64_t m, float* scores,
                               const std::byte* ahead) const {
    F32 sums[kQueries] = {};
    for (int g = 0; g < kGroups; ++g) {
      const Codes* q = queries + m * kGroups + g;
      __m512i high[kQueries];
      __m512i low[kQueries];
      for (int i = 0; i < kQueries; ++i) high[i] = low[i] = _mm512_setzero_si512();
      for (int w = 0; w < kGroupWords; ++w) {
        if (ahead != nullptr) __builtin_prefetch(ahead + (g * kGroupWords + w) * 64, 0, 2);
        // The instruction wants one side unsigned: k + 128, made up for by the offset.
        const __m512i k = _mm512_xor_si512(_mm512_loadu_si512(keys + (g * kGroupWords + w) * 64),
                                           _mm512_set1_epi8(static_cast<char>(0x80)));
        for (int i = 0; i < kQueries; ++i) {
          high[i] = dot(high[i], k, splat_word(q[i * kGroups].high[w]));
          low[i] = dot(low[i], k, splat_word(q[i * kGroups].low[w]));
        }
      }
      const F32 scales = load<F32>(keys + kScalesAt<KvType::kQ8> + g * kBlockRows * 4);
      for (int i = 0; i < kQueries; ++i) {
        const Codes& code = q[i * kGroups];
        const auto total =
            (reinterpret_cast<I32>(high[i]) << 8) + reinterpret_cast<I32>(low[i]) + code.offset;
        sums[i] += __builtin_convertvector(total, F32) * (scales * code.scale);
      }
    }
    for (int i = 0; i < kQueries; ++i) store(scores + i * kTileSize, sums[i]);
  }

  LILY_INLINE void add_part(const std::byte* values, int part, std::int64_t m, float* sums,
                            const std::byte* ahead) const {
    const Codes* p = probabilities + m * kGroups + part * kWordLanes / kScaledBy;
    __m512i high[kQueries];
    __m512i low[kQueries];
    for (int i = 0; i < kQueries; ++i) high[i] = low[i] = _mm512_setzero_si512();
    for (int b = 0; b < kTileSize / kBlockRows; ++b) {
      for (int w = 0; w < kBlockWords; ++w) {
        const int word = b * kBlockWords + w;
        if (ahead != nullptr) __builtin_prefetch(ahead + word * 64, 0, 2);
        const __m512i v = _mm512_loadu_si512(values + b * kBlockBytes + (part * kBlockWords + w) * 64);
        for (int i = 0; i < kQueries; ++i) {
          high[i] = dot(high[i], splat_word(p[i * kGroups].high[word]), v);
          low[i] = dot(low[i], splat_word(p[i * kGroups].low[word]), v);
        }
      }
    }
    for (int i = 0; i < kQueries; ++i) {
      const auto total = (reinterpret_cast<I32>(high[i]) << 8) + reinterpret_cast<I32>(low[i]);
      float* out = sums + i * kHeadSize;
      store(out, load_f32(out) + __builtin_convertvector(total, F32) * p[i * kGroups].scale);
    }
  }
};
static_assert(2 * kAttentionQueries * Q8Products::kGroups * sizeof(Q8Products::Codes) <=
              (attend_scratch() - kAttentionQueries * kTileSize) * sizeof(float));

void attend_q8(const AttendArgs& args) {
  attend_tiles<KvType::kQ8, Q8Products>(args);
}

}  // namespace
}  // namespace lily::cpu
