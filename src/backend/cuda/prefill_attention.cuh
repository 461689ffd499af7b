// What the two kernels of prompts' attention share: which rows and keys a tile has, the running softmax, and
// how what ranges of keys give is joined.
//
// A tile is 128 packed rows: the query heads of a KV head of the tokens between two multiples of a power of
// two (16 tokens of 8 heads). Keys are cut into at most eight ranges by the row's position alone, the same
// for all rows of a tile. A tile of few rows gives every range a block; otherwise a block takes one range
// after the other. Either way a range begins with nothing and is joined to those before it, in the same order
// and by the same operations, so a prompt's rows get the same bits however it is cut.
#pragma once

#include "backend/cuda/attention_heads.cuh"

namespace lily::cuda {

inline constexpr int kAttentionTileRows = 128;
inline constexpr int kAttentionThreads = 256;  ///< that hold a tile's output: a warp 16 rows
inline constexpr int kMostRanges = 8;
inline constexpr float kNothing = -1e30F;

/// Tokens whose heads share a tile.
LILY_HD inline int tile_tokens(int group) {
  int tokens = kAttentionTileRows;
  while (tokens * group > kAttentionTileRows) tokens /= 2;
  return tokens;
}
/// Keys of a range of a row at `position`: kMostRanges of them reach it.
LILY_HD inline int range_keys(int position, int least) {
  int keys = least;
  while (position / keys >= kMostRanges) keys *= 2;
  return keys;
}

/// What a block has to do. grid (tiles of the longest segment, Nkv, segments * ranges)
struct AttentionTile {
  SegmentRows segment;
  int kv_head;
  int group;        ///< query heads a KV head
  int first_token;  ///< position of packed row 0
  int end_key;      ///< the segment's rows see no key from here on
  int keys;         ///< of a range
  int ranges;
  int place;  ///< among the tiles that have partial results
  bool empty;

  __device__ AttentionTile(const AttentionPrefillArgs& a, int z)
      : segment(a.segments[z]),
        kv_head(static_cast<int>(blockIdx.y)),
        group(a.query_heads / a.cache.kv_heads) {
    const int tokens = tile_tokens(group);
    const int before = segment.position / tokens;
    const int last = (segment.position + segment.rows - 1) / tokens;
    // The last rows have the most keys: they go first.
    const int tile = static_cast<int>(gridDim.x - 1 - blockIdx.x);
    empty = before + tile > last;
    first_token = (before + tile) * tokens;
    end_key = min(first_token + tokens, segment.position + segment.rows);
    keys = range_keys(first_token, a.least_range);
    ranges = first_token / keys + 1;
    // A segment has at most rows / tokens + 2 tiles.
    place = ((segment.first_row / tokens + 2 * z + tile) * a.cache.kv_heads + kv_head);
  }
  /// Position of a packed row.
  __device__ int token(int packed) const { return first_token + packed / group; }
  /// Its row of the step, or -1.
  __device__ int row(int packed) const {
    const int in_segment = token(packed) - segment.position;
    const bool here = packed < tile_tokens(group) * group && in_segment >= 0 && in_segment < segment.rows;
    return here ? segment.first_row + in_segment : -1;
  }
  __device__ int head(int packed) const { return kv_head * group + packed % group; }
  __device__ int range_begin(int range) const { return range * keys; }
  __device__ int range_end(int range) const { return min((range + 1) * keys, end_key); }
};

/// Eight elements from `chunk` * 8 on of a packed row's query; zeros where it has none.
__device__ __forceinline__ uint4 query_chunk(const AttentionPrefillArgs& a, const AttentionTile& tile,
                                             int packed, int chunk) {
  const int row = tile.row(packed);
  if (row < 0) return make_uint4(0, 0, 0, 0);
  const std::int64_t head = static_cast<std::int64_t>(row) * a.query_heads + tile.head(packed);
  return *reinterpret_cast<const uint4*>(a.query + head * kHeadDim + chunk * 8);
}

/// Running softmax of a lane's two rows, g and g + 8 of its warp's sixteen.
struct Softmax {
  float largest[2] = {kNothing, kNothing};  ///< scaled
  float total[2] = {0, 0};                  ///< of the lane's own columns

  /// Scores of 8 kColumns keys to probabilities; `limit`: last key of each row, which only matters where
  /// `masked`. Of a masked key: 0, since every row has met the range's first key.
  template <int kColumns>
  __device__ __forceinline__ void update(float (&s)[kColumns][4], int first_key, const int (&limit)[2],
                                         bool masked, float (&shrink)[2]) {
    if (masked) mask(s, first_key, limit);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = kNothing;
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) most = fmaxf(most, s[n][2 * r + e]);
      }
      most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, 2));
      most = fmaxf(largest[r], most * kScoreScale);
      shrink[r] = exp2_approximate(largest[r] - most);
      largest[r] = most;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[n][2 * r + e];
          x = exp2_approximate(__fmaf_rn(x, kScoreScale, -most));
          sum += x;
        }
      }
      total[r] = __fmaf_rn(total[r], shrink[r], sum);
    }
  }

 private:
  template <int kColumns>
  __device__ static __forceinline__ void mask(float (&s)[kColumns][4], int first_key, const int (&limit)[2]) {
    const int key = first_key + 2 * static_cast<int>(threadIdx.x & 3);
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (key + n * 8 + (i & 1) > limit[i >> 1]) s[n][i] = kNothing;
      }
    }
  }
};

/// Probabilities of 16 keys as an A fragment.
__device__ __forceinline__ void pack_probabilities(std::uint32_t (&p)[4], const float (&s)[4],
                                                   const float (&next)[4]) {
  p[0] = pack_bf16(s[0], s[1]);
  p[1] = pack_bf16(s[2], s[3]);
  p[2] = pack_bf16(next[0], next[1]);
  p[3] = pack_bf16(next[2], next[3]);
}

/// A lane's part of a tile's output: row g in elements 0 and 1, row g + 8 in 2 and 3; element n of 32 covers
/// columns 8 n + 2 c and the next.
template <int kColumns>
struct TileOutput {
  float o[kColumns][4];
  Softmax softmax;

  __device__ __forceinline__ void clear() {
    softmax = Softmax();
#pragma unroll
    for (int n = 0; n < kColumns; ++n) o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0;
  }
  __device__ __forceinline__ void scale(const float (&factor)[2]) {
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      o[n][0] *= factor[0];
      o[n][1] *= factor[0];
      o[n][2] *= factor[1];
      o[n][3] *= factor[1];
    }
  }
};

/// A tile's output in memory, as the threads hold it: [33][256 threads] of four floats, the last of them the
/// softmax.
inline constexpr int kPartialVectors = kHeadDim / 8 + 1;
static_assert(kAttentionPartialFloats == kPartialVectors * kAttentionThreads * 4);

__device__ __forceinline__ float4 packed(const Softmax& s) {
  return make_float4(s.largest[0], s.largest[1], s.total[0], s.total[1]);
}
template <int kColumns>
__device__ __forceinline__ void store_partial(const TileOutput<kColumns>& x, float4* partial, int thread) {
#pragma unroll
  for (int n = 0; n < kColumns; ++n)
    partial[n * kAttentionThreads + thread] = make_float4(x.o[n][0], x.o[n][1], x.o[n][2], x.o[n][3]);
  partial[(kPartialVectors - 1) * kAttentionThreads + thread] = packed(x.softmax);
}
/// Columns from 8 * `first` on.
template <int kColumns>
__device__ __forceinline__ void load_partial(TileOutput<kColumns>& x, const float4* partial, int thread,
                                             int first) {
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
    const float4 o = partial[(first + n) * kAttentionThreads + thread];
    x.o[n][0] = o.x;
    x.o[n][1] = o.y;
    x.o[n][2] = o.z;
    x.o[n][3] = o.w;
  }
  const float4 softmax = partial[(kPartialVectors - 1) * kAttentionThreads + thread];
  x.softmax.largest[0] = softmax.x;
  x.softmax.largest[1] = softmax.y;
  x.softmax.total[0] = softmax.z;
  x.softmax.total[1] = softmax.w;
}
/// x, of a later range, becomes what both give together. `earlier`: the other's softmax, as stored;
/// `column(n)`: its output.
template <int kColumns, class Column>
__device__ __forceinline__ void join_earlier(TileOutput<kColumns>& x, float4 earlier, Column&& column) {
  const float largest[2] = {earlier.x, earlier.y};
  const float total[2] = {earlier.z, earlier.w};
  float before[2];
  float after[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float most = fmaxf(largest[r], x.softmax.largest[r]);
    before[r] = exp2_approximate(largest[r] - most);
    after[r] = exp2_approximate(x.softmax.largest[r] - most);
    x.softmax.largest[r] = most;
    x.softmax.total[r] = __fmaf_rn(total[r], before[r], __fmul_rn(x.softmax.total[r], after[r]));
  }
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
    const float4 o = column(n);
    x.o[n][0] = __fmaf_rn(o.x, before[0], __fmul_rn(x.o[n][0], after[0]));
    x.o[n][1] = __fmaf_rn(o.y, before[0], __fmul_rn(x.o[n][1], after[0]));
    x.o[n][2] = __fmaf_rn(o.z, before[1], __fmul_rn(x.o[n][2], after[1]));
    x.o[n][3] = __fmaf_rn(o.w, before[1], __fmul_rn(x.o[n][3], after[1]));
  }
}

/// Divided by the sums, gated, to the step's rows.
template <int kColumns>
__device__ __forceinline__ void store_output(const AttentionPrefillArgs& a, const AttentionTile& tile,
                                             const TileOutput<kColumns>& x, int thread, int first = 0) {
  const int c = thread & 3;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float total = x.softmax.total[r];
    total += __shfl_xor_sync(0xffffffffU, total, 1);
    total += __shfl_xor_sync(0xffffffffU, total, 2);
    const int packed = (thread >> 5) * 16 + ((thread & 31) >> 2) + r * 8;
    const int row = tile.row(packed);
    if (row < 0) continue;
    const int head = tile.head(packed);
    const float inverse = 1.0F / total;
    const int column = first * 8 + 2 * c;
    const __nv_bfloat16* gate =
        a.projected + static_cast<std::int64_t>(row) * a.stride + (head * 2 + 1) * kHeadDim + column;
    __nv_bfloat16* out = a.out + (static_cast<std::int64_t>(row) * a.query_heads + head) * kHeadDim + column;
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      const std::uint32_t z = *reinterpret_cast<const std::uint32_t*>(gate + n * 8);
      *reinterpret_cast<std::uint32_t*>(out + n * 8) =
          pack_bf16(x.o[n][2 * r] * inverse * sigmoid(bf16_low(z)),
                    x.o[n][2 * r + 1] * inverse * sigmoid(bf16_high(z)));
    }
  }
}

/// After a range: to memory for join_ranges(), or joined with those before it and, after the last, put out.
/// True where the block has another range to do.
template <bool kSplit>
__device__ __forceinline__ bool end_range(const AttentionPrefillArgs& a, const AttentionTile& tile,
                                          TileOutput<kHeadDim / 8>& x, int range, int thread) {
  const int place = kSplit ? tile.place * kMostRanges + range : tile.place;
  float4* partial =
      reinterpret_cast<float4*>(a.partial) + static_cast<std::int64_t>(place) * (kAttentionPartialFloats / 4);
  if (kSplit && tile.ranges > 1) {
    store_partial(x, partial, thread);
    return false;
  }
  if (range > 0) {
    join_earlier(x, partial[(kPartialVectors - 1) * kAttentionThreads + thread],
                 [&](int n) { return partial[n * kAttentionThreads + thread]; });
  }
  if (range == tile.ranges - 1) {
    store_output(a, tile, x, thread);
    return false;
  }
  store_partial(x, partial, thread);
  return true;
}

/// attend_tile on Hopper's wgmma; `split`: a block a range, then join_ranges().
void hopper_attention(const Launch& where, const AttentionPrefillArgs& a, dim3 grid, bool split);

}  // namespace lily::cuda
