// Attention with an online softmax: the query heads that share a KV head, over tiles of 64 K/V rows.
//
// Tiles start at absolute multiples of 64, and a tile that a query may not see leaves its sums as they are,
// so a query's result does not depend on the queries beside it or on how a prompt was cut.
#pragma once

#include "backend/cpu/kernels.h"
#include "backend/cpu/vector_impl.h"

namespace lily::cpu {
namespace {

constexpr int kHeadSize = 256;
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

template <CacheType kType>
constexpr std::int64_t kCachedSize = kType == CacheType::kBf16 ? 2 : 4;

/// kLanes elements from element `index` on.
template <CacheType kType>
LILY_INLINE F32 load_cached(const std::byte* p, std::int64_t index) {
  if constexpr (kType == CacheType::kBf16) {
    return load_bf16(p + index * 2);
  } else {
    return load<F32>(p + index * 4);
  }
}

/// out[dim][row], f32; rows from `rows` on are zero.
template <CacheType kType>
LILY_INLINE void load_keys(const std::byte* keys, std::int64_t rows, float* out) {
  for (int t = 0; t < kTileSize; t += kLanes) {
    for (int d = 0; d < kHeadSize; d += kLanes) {
      F32 block[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        block[i] = t + i < rows ? load_cached<kType>(keys, (t + i) * kHeadSize + d) : F32{};
      }
      transpose<kLanes>(block);
      for (int i = 0; i < kLanes; ++i) store(out + (d + i) * kTileSize + t, block[i]);
    }
  }
}
template <CacheType kType>
LILY_INLINE void load_values(const std::byte* values, std::int64_t rows, float* out) {
  for (std::int64_t i = 0; i < kTileSize * kHeadSize; i += kLanes) {
    store(out + i, i < rows * kHeadSize ? load_cached<kType>(values, i) : F32{});
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

template <CacheType kType>
void attend_cached(const AttendArgs& a) {
  float* keys = a.scratch;
  float* values = keys + kTileSize * kHeadSize;
  float* scores = values + kTileSize * kHeadSize;
  const std::int64_t padded = (a.count + 7) / 8 * 8;
  for (std::int64_t t = a.begin; t < a.end; t += kTileSize) {
    const std::int64_t rows = a.end - t < kTileSize ? a.end - t : kTileSize;
    const std::int64_t in_page = t % kPageRows * kHeadSize * kCachedSize<kType>;
    const std::int64_t first = a.pages[t / kPageRows] * a.page_stride + in_page;
    load_keys<kType>(a.keys + first, rows, keys);
    load_values<kType>(a.values + first, rows, values);
    gemm<false>({a.queries, kHeadSize, keys, kTileSize, scores, kTileSize, padded, kTileSize, kHeadSize});
    for (std::int64_t i = 0; i < a.count; ++i) {
      const std::int64_t seen = a.positions[i] - t + 1;
      softmax_row(scores + i * kTileSize, seen < rows ? seen : rows, a.largest[i], a.total[i],
                  a.sums + i * kHeadSize);
    }
    gemm<true>({scores, kTileSize, values, kHeadSize, a.sums, kHeadSize, padded, kHeadSize, kTileSize});
  }
}

void attend(const AttendArgs& args) {
  args.type == CacheType::kBf16 ? attend_cached<CacheType::kBf16>(args)
                                : attend_cached<CacheType::kF32>(args);
}

}  // namespace
}  // namespace lily::cpu
