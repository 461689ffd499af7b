// Attention with an online softmax: the query heads that share a KV head, over tiles of 64 K/V rows.
//
// Tiles start at absolute multiples of 64, and a tile that a query may not see leaves its sums as they are,
// so a query's result does not depend on the queries beside it or on how a prompt was cut.
#pragma once

#include "backend/cpu/kernels.h"
#include "backend/cpu/kv_impl.h"
#include "backend/cpu/vector_impl.h"

namespace lily::cpu {
namespace {

constexpr int kTileSize = static_cast<int>(kAttentionTile);
constexpr int kPageRows = 256;
constexpr int kGemmRows = kLanes == 16 ? 8 : 4;  // with two vectors a row these fill the registers

/// C[m][n] (+)= sum_k A[m][k] B[k][n] for m a multiple of kGemmRows and n of 2 kLanes; k ascending.
struct Gemm {
  const float* a;
  std::int64_t a_stride;
  const float* b;
  std::int64_t b_stride;
  float* c;
  std::int64_t c_stride;
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

template <bool kAccumulate>
LILY_INLINE void gemm_tile(const Gemm& g, std::int64_t m, std::int64_t n) {
  F32 acc[kGemmRows][2];
  float* c = g.c + m * g.c_stride + n;
  for (int i = 0; i < kGemmRows; ++i) {
    for (int j = 0; j < 2; ++j) acc[i][j] = kAccumulate ? load_f32(c + i * g.c_stride + j * kLanes) : F32{};
  }
  for (std::int64_t k = 0; k < g.k; ++k) {
    const F32 b[2] = {load_f32(g.b + k * g.b_stride + n), load_f32(g.b + k * g.b_stride + n + kLanes)};
    for (int i = 0; i < kGemmRows; ++i) {
      const float a = g.a[(m + i) * g.a_stride + k];
      for (int j = 0; j < 2; ++j) acc[i][j] += b[j] * a;
    }
  }
  for (int i = 0; i < kGemmRows; ++i) {
    for (int j = 0; j < 2; ++j) store(c + i * g.c_stride + j * kLanes, acc[i][j]);
  }
}
template <bool kAccumulate>
LILY_INLINE void gemm(const Gemm& g) {
  for (std::int64_t n = 0; n < g.n; n += 2 * kLanes) {
    for (std::int64_t m = 0; m < g.m; m += kGemmRows) gemm_tile<kAccumulate>(g, m, n);
  }
}

/// Turns one query's scores of a tile into exp(score - largest), 0 past `visible` rows, and rescales what was
/// summed.
LILY_INLINE void softmax_row(float* scores, std::int64_t visible, float& largest, float& total, float* sums) {
  constexpr int kVectors = kTileSize / kLanes;
  if (visible <= 0) {
    for (int i = 0; i < kVectors; ++i) store(scores + i * kLanes, F32{});
    return;
  }
  const F32 nothing = splat(-__builtin_inff());
  F32 s[kVectors];
  F32 top = nothing;
  for (int i = 0; i < kVectors; ++i) {
    const I32 row = iota() + i * kLanes;
    s[i] = row < static_cast<std::int32_t>(visible) ? load_f32(scores + i * kLanes) : nothing;
    top = max(top, s[i]);
  }
  const float tile_largest = reduce_max(top);
  const float updated = tile_largest > largest ? tile_largest : largest;
  F32 sum = F32{};
  for (int i = 0; i < kVectors; ++i) {
    s[i] = exp(s[i] - updated);
    sum += s[i];
    store(scores + i * kLanes, s[i]);
  }
  if (updated != largest) {
    const float factor = exp(largest - updated);
    total *= factor;
    for (int i = 0; i < kHeadSize; i += kLanes) store(sums + i, load_f32(sums + i) * factor);
    largest = updated;
  }
  total += reduce_add(sum);
}

/// A tile of K/V rows: where its blocks begin.
struct KvTile {
  const std::byte* keys;
  const std::byte* values;
  const std::byte* next_keys;  ///< of the tile to come, or these once more
  std::int64_t rows;           ///< that there are, at most kTileSize
};

/// Queries and keys, probabilities and values in f32, widened tile by tile.
template <KvType kType>
struct WidenedProducts {
  static constexpr std::int64_t kBlockBytes = kv_block_bytes(kType);
  const float* queries;  ///< [padded, 256]
  std::int64_t padded;
  float* keys;    ///< scratch, [256, kTileSize]
  float* values;  ///< scratch, [kTileSize, 256]

  LILY_INLINE WidenedProducts(const AttendArgs& a, std::int64_t padded_count, float* scratch)
      : queries(a.queries), padded(padded_count), keys(scratch), values(scratch + kTileSize * kHeadSize) {}

  /// scores[query][row]
  LILY_INLINE void score(const KvTile& tile, float* scores) {
    for (int r = 0; r < kTileSize; r += kBlockRows) {
      widen_keys<kType>(tile.keys + r / kBlockRows * kBlockBytes, keys + r, kTileSize);
    }
    gemm<false>({queries, kHeadSize, keys, kTileSize, scores, kTileSize, padded, kTileSize, kHeadSize});
  }
  /// sums[query] += sum over rows of probabilities[query][row] * value[row]
  LILY_INLINE void add(const KvTile& tile, const float* probabilities, float* sums) {
    for (int r = 0; r < kTileSize; r += kBlockRows) {
      widen_values<kType>(tile.values + r / kBlockRows * kBlockBytes, tile.rows - r, values + r * kHeadSize);
    }
    gemm<true>({probabilities, kTileSize, values, kHeadSize, sums, kHeadSize, padded, kHeadSize, kTileSize});
  }
};

template <KvType kType>
LILY_INLINE std::int64_t kv_tile_offset(const AttendArgs& a, std::int64_t t) {
  return a.pages[t / kPageRows] * a.page_stride + t % kPageRows / kBlockRows * kv_block_bytes(kType);
}

template <KvType kType, class Products>
void attend_tiles(const AttendArgs& a) {
  float* scores = a.scratch;
  const std::int64_t padded = (a.count + 7) / 8 * 8;
  Products products(a, padded, scores + kAttentionQueries * kTileSize);
  for (std::int64_t t = a.begin; t < a.end; t += kTileSize) {
    const std::int64_t rows = a.end - t < kTileSize ? a.end - t : kTileSize;
    const std::int64_t at = kv_tile_offset<kType>(a, t);
    const std::int64_t next = t + kTileSize < a.end ? kv_tile_offset<kType>(a, t + kTileSize) : at;
    const KvTile tile = {a.keys + at, a.values + at, a.keys + next, rows};
    products.score(tile, scores);
    for (std::int64_t i = 0; i < a.count; ++i) {
      const std::int64_t seen = a.positions[i] - t + 1;
      softmax_row(scores + i * kTileSize, seen < rows ? seen : rows, a.largest[i], a.total[i],
                  a.sums + i * kHeadSize);
    }
    products.add(tile, scores, a.sums);
  }
}

template <KvType kType>
void attend_widened(const AttendArgs& args) {
  attend_tiles<kType, WidenedProducts<kType>>(args);
}

}  // namespace
}  // namespace lily::cpu
