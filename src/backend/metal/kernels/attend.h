// Softmax attention of kQueryTile query rows by one SIMD-group, with 8x8 matrices and no threadgroup memory:
// rows are the query heads of a KV head (of one token or several), so K and V are read once for all of them.
// Sums, maxima and outputs are f32, the operands bf16.
#pragma once

#include "tiles.h"

/// Over the lanes of a matrix row.
inline float row_max(float x) {
  x = max(x, simd_shuffle_xor(x, ushort(1)));
  return max(x, simd_shuffle_xor(x, ushort(8)));
}
inline float row_sum(float x) {
  x += simd_shuffle_xor(x, ushort(1));
  return x + simd_shuffle_xor(x, ushort(8));
}

/// A layer's K and V rows of one KV head.
struct Cache {
  device const bfloat* pages;  // this layer and head in page 0
  device const int* table;     // of the sequence
  ulong page_stride;
  int kv_heads;
  device const bfloat* row(int position, bool value) const {
    const ulong half_page = ulong(kv_heads) * ulong(kPageTokens * kHeadDim);
    return pages + ulong(table[position / kPageTokens]) * page_stride + (value ? half_page : 0) +
           ulong(position % kPageTokens) * ulong(kHeadDim);
  }
};
inline ulong cache_offset(constant AttentionArgs& a, int kv_head) {
  return ulong(a.layer_offset) + ulong(kv_head) * ulong(kPageTokens * kHeadDim);
}

LILY_SHARED int kTiles = kHeadDim / 8;
LILY_SHARED int kKeyTiles = kKeyTile / 8;
LILY_SHARED float kScoreScale = 0.0625f * 1.4426950408889634f;  // 1 / sqrt(256), base 2

struct Attention {
  FloatTile out[kTiles];
  float largest;  // of this lane's row, base 2
  float total;
};

inline void start_attention(thread Attention& s) {
  for (int i = 0; i < kTiles; ++i) s.out[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  s.largest = kNothing;
  s.total = 0.0f;
}

/// kKeyTile keys from `first` on, of which this lane's row sees those up to `last`. V rows beyond a
/// sequence's end are finite (prepare_heads sees to that): their weight is 0. A tile that a row sees nothing
/// of changes none of its bits.
inline void attend_tile(thread Attention& s, device const bfloat* query, Cache cache, int first, int last,
                        uint lane) {
  device const bfloat* keys = cache.row(first, false);
  FloatTile scores[kKeyTiles];
  for (int n = 0; n < kKeyTiles; ++n) scores[n] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (int i = 0; i < kTiles; ++i) {
    BfloatTile q;
    simdgroup_load(q, query + i * 8, ulong(kHeadDim));
    for (int n = 0; n < kKeyTiles; ++n) {
      BfloatTile k;
      simdgroup_load(k, keys + n * 8 * kHeadDim + i * 8, ulong(kHeadDim), ulong2(0, 0), true);
      simdgroup_multiply_accumulate(scores[n], q, k, scores[n]);
    }
  }
  const int column = first + matrix_column(lane);
  float largest = s.largest;
  float2 p[kKeyTiles];
  for (int n = 0; n < kKeyTiles; ++n) {
    const float2 score = elements(scores[n]);
    p[n].x = column + n * 8 <= last ? score.x * kScoreScale : kNothing;
    p[n].y = column + n * 8 + 1 <= last ? score.y * kScoreScale : kNothing;
    largest = max(largest, max(p[n].x, p[n].y));
  }
  largest = row_max(largest);
  const float shrink = exp2(s.largest - largest);
  s.largest = largest;
  float sum = 0.0f;
  BfloatTile weights[kKeyTiles];
  for (int n = 0; n < kKeyTiles; ++n) {
    p[n].x = column + n * 8 <= last ? exp2(p[n].x - largest) : 0.0f;
    p[n].y = column + n * 8 + 1 <= last ? exp2(p[n].y - largest) : 0.0f;
    sum += p[n].x + p[n].y;
    weights[n] = make_filled_simdgroup_matrix<bfloat, 8, 8>(bfloat(0.0f));
    weights[n].thread_elements()[0] = bfloat(p[n].x);
    weights[n].thread_elements()[1] = bfloat(p[n].y);
  }
  s.total = fma(s.total, shrink, sum);  // of this lane's keys; the row's lanes are added at the end
  device const bfloat* values = cache.row(first, true);
  for (int i = 0; i < kTiles; ++i) {
    scale_elements(s.out[i], shrink);
    for (int n = 0; n < kKeyTiles; ++n) {
      BfloatTile v;
      simdgroup_load(v, values + n * 8 * kHeadDim + i * 8, ulong(kHeadDim));
      simdgroup_multiply_accumulate(s.out[i], weights[n], v, s.out[i]);
    }
  }
}
