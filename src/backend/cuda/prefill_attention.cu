// Causal attention over the rows of prefill segments: queries, K and V prepared, then tiles of queries
// (prefill_attention.cuh) against tiles of keys. Here on mma.sync: K and V come through shared memory 32 rows
// at a time, V while the scores are computed, the next K while the output is. 96 KB: two of that would leave
// no room on sm_86 and sm_89. Hopper has its own (hopper_attention.cu).
#include <algorithm>

#include "backend/cuda/launch.cuh"
#include "backend/cuda/prefill_attention.cuh"

namespace lily::cuda {
namespace {

constexpr int kThreads = kAttentionThreads;
constexpr int kWarps = kThreads / 32;
constexpr int kKeys = 32;
constexpr int kRowBytes = kHeadDim * 2;
constexpr std::size_t kShared = (kAttentionTileRows + 2 * kKeys) * kRowBytes;

// A block a row: queries normed, rotated and in bf16; K and V into the cache.
__global__ void __launch_bounds__(kThreads) prepare_rows(AttentionPrefillArgs a) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const std::int64_t row = blockIdx.x;
  const __nv_bfloat16* projected = a.projected + row * a.stride;
  const Rotation rotation(a.rows.rope + row * kRotary);
  const int* pages = a.rows.pages + static_cast<std::int64_t>(a.rows.table[row]) * a.rows.page_stride;
  const int kv_heads = a.cache.kv_heads;
  for (int head = static_cast<int>(threadIdx.x >> 5); head < a.query_heads + 2 * kv_heads; head += kWarps) {
    const int kv = head - a.query_heads;  // K heads, then V heads
    const int channel = kv < 0 ? head * 2 * kHeadDim : (a.query_heads * 2 + kv) * kHeadDim;
    const uint4 raw = *reinterpret_cast<const uint4*>(projected + channel + lane * 8);
    const bool value = kv >= kv_heads;
    __nv_bfloat16* out = kv < 0 ? a.query + (row * a.query_heads + head) * kHeadDim
                                : cache_row(a.cache, pages, a.rows.position[row], value, kv % kv_heads);
    uint4 packed = raw;
    if (!value) {
      Eight x = {{bf16_low(raw.x), bf16_high(raw.x), bf16_low(raw.y), bf16_high(raw.y), bf16_low(raw.z),
                  bf16_high(raw.z), bf16_low(raw.w), bf16_high(raw.w)}};
      norm_and_rotate(x, load_eight((kv < 0 ? a.q_gain : a.k_gain) + lane * 8), a.eps, rotation);
      packed = pack8(x);
    }
    *reinterpret_cast<uint4*>(out + lane * 8) = packed;
  }
}

// 16-byte chunk `chunk` of row `row`, turned so that eight rows' equal chunks lie in different banks.
__device__ __forceinline__ std::uint8_t* chunk_at(std::uint8_t* tile, int row, int chunk) {
  return tile + row * kRowBytes + ((chunk ^ (row & 7)) << 4);
}

struct KeyRange {
  const int* pages;
  int end;  // rows from here on are not read
  int kv_head;
};
__device__ void load_tile(const AttentionPrefillArgs& a, const KeyRange& range, std::uint8_t* tile, int first,
                          bool value) {
  if (first < range.end) {
    const __nv_bfloat16* rows = cache_row(a.cache, range.pages, first, value, range.kv_head);
    for (int i = static_cast<int>(threadIdx.x); i < kKeys * 32; i += kThreads) {
      const int row = i / 32;
      const bool valid = first + row < range.end;
      copy_async16(chunk_at(tile, row, i % 32), valid ? rows + row * kHeadDim + (i % 32) * 8 : rows, valid);
    }
  }
  commit_copies();
}

// S = Q K^T for a warp's 16 rows and 32 keys.
__device__ __forceinline__ void scores(float (&s)[4][4], std::uint8_t* queries, std::uint8_t* keys,
                                       int first_row) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int matrix = lane >> 3;
  const int in_matrix = lane & 7;
#pragma unroll
  for (int n = 0; n < 4; ++n) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll 4
  for (int k = 0; k < kHeadDim / 16; ++k) {
    std::uint32_t q[4];  // rows 0..7, 8..15 of the first 8 dims, then of the second
    load_matrices(q, chunk_at(queries, first_row + (matrix & 1) * 8 + in_matrix, 2 * k + (matrix >> 1)));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t b[4];  // keys 0..7: dims 0..7, 8..15; keys 8..15 the same
      load_matrices(b, chunk_at(keys, half * 16 + (matrix >> 1) * 8 + in_matrix, 2 * k + (matrix & 1)));
      mma_bf16(s[2 * half], q, b[0], b[1]);
      mma_bf16(s[2 * half + 1], q, b[2], b[3]);
    }
  }
}

// O += P V for a warp's 16 rows.
__device__ __forceinline__ void add_values(float (&o)[32][4], const std::uint32_t (&p)[2][4],
                                           std::uint8_t* values) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int matrix = lane >> 3;
  const int in_matrix = lane & 7;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
#pragma unroll
    for (int d = 0; d < 16; ++d) {
      std::uint32_t v[4];  // 8 dims: keys 0..7, 8..15; the next 8 dims the same
      load_matrices_transposed(
          v, chunk_at(values, k * 16 + (matrix & 1) * 8 + in_matrix, 2 * d + (matrix >> 1)));
      mma_bf16(o[2 * d], p[k], v[0], v[1]);
      mma_bf16(o[2 * d + 1], p[k], v[2], v[3]);
    }
  }
}

__device__ void load_queries(const AttentionPrefillArgs& a, const AttentionTile& tile,
                             std::uint8_t* queries) {
  for (int i = static_cast<int>(threadIdx.x); i < kAttentionTileRows * 32; i += kThreads)
    *reinterpret_cast<uint4*>(chunk_at(queries, i / 32, i % 32)) = query_chunk(a, tile, i / 32, i % 32);
}

// Queries and 32 keys at a time of one range.
__device__ void attend_range(const AttentionPrefillArgs& a, const AttentionTile& tile, std::uint8_t* memory,
                             int range, TileOutput<kHeadDim / 8>& x) {
  std::uint8_t* queries = memory;
  std::uint8_t* keys = memory + kAttentionTileRows * kRowBytes;
  std::uint8_t* values = keys + kKeys * kRowBytes;
  const int warp_row = static_cast<int>(threadIdx.x >> 5) * 16;
  const int packed = warp_row + static_cast<int>((threadIdx.x & 31) >> 2);
  const int limit[2] = {tile.token(packed), tile.token(packed + 8)};
  const KeyRange rows{a.rows.pages + static_cast<std::int64_t>(tile.segment.table) * a.rows.page_stride,
                      tile.range_end(range), tile.kv_head};
  load_tile(a, rows, keys, tile.range_begin(range), false);
  load_tile(a, rows, values, tile.range_begin(range), true);
  for (int key = tile.range_begin(range); key < rows.end; key += kKeys) {
    float s[4][4];
    wait_for_copies<1>();
    __syncthreads();
    scores(s, queries, keys, warp_row);
    __syncthreads();
    load_tile(a, rows, keys, key + kKeys, false);
    float shrink[2];
    x.softmax.update(s, key, limit, key + kKeys - 1 > tile.first_token, shrink);
    x.scale(shrink);
    std::uint32_t p[2][4];
#pragma unroll
    for (int k = 0; k < 2; ++k) pack_probabilities(p[k], s[2 * k], s[2 * k + 1]);
    wait_for_copies<1>();
    __syncthreads();
    add_values(x.o, p, values);
    __syncthreads();
    load_tile(a, rows, values, key + kKeys, true);
  }
}

template <bool kSplit>
__global__ void __launch_bounds__(kThreads, 1) attend_tile(AttentionPrefillArgs a) {
  LILY_DYNAMIC_SHARED(memory);
  const int z = static_cast<int>(blockIdx.z);
  const AttentionTile tile(a, kSplit ? z / kMostRanges : z);
  int range = kSplit ? z % kMostRanges : 0;
  if (tile.empty || range >= tile.ranges) return;
  load_queries(a, tile, memory);
  TileOutput<kHeadDim / 8> x;
  do {
    x.clear();
    attend_range(a, tile, memory, range, x);
  } while (end_range<kSplit>(a, tile, x, range++, static_cast<int>(threadIdx.x)));
}

constexpr int kJoinParts = 4;  // blocks that share a tile's columns

// grid (tiles, Nkv, segments * kJoinParts): what a tile's ranges have given, in their order.
__global__ void __launch_bounds__(kThreads) join_ranges(AttentionPrefillArgs a) {
  constexpr int kColumns = kHeadDim / 8 / kJoinParts;
  const int z = static_cast<int>(blockIdx.z);
  const AttentionTile tile(a, z / kJoinParts);
  if (tile.empty || tile.ranges == 1) return;
  const int first = z % kJoinParts * kColumns;
  const int thread = static_cast<int>(threadIdx.x);
  const float4* partial = reinterpret_cast<const float4*>(a.partial) +
                          static_cast<std::int64_t>(tile.place) * kMostRanges * (kAttentionPartialFloats / 4);
  TileOutput<kColumns> x;
  load_partial(x, partial, thread, first);
  for (int range = 1; range < tile.ranges; ++range) {
    const TileOutput<kColumns> earlier = x;
    partial += kAttentionPartialFloats / 4;
    load_partial(x, partial, thread, first);
    join_earlier(x, packed(earlier.softmax), [&](int n) {
      return make_float4(earlier.o[n][0], earlier.o[n][1], earlier.o[n][2], earlier.o[n][3]);
    });
  }
  store_output(a, tile, x, thread, first);
}

}  // namespace

int attention_partial_tiles(std::int64_t rows, std::int64_t segments, int query_heads, int kv_heads) {
  const std::int64_t tokens = tile_tokens(query_heads / kv_heads);
  return static_cast<int>(
      std::max<std::int64_t>((rows / tokens + 2 * segments) * kv_heads, kLeastPartialTiles));
}

void attention_prefill(const Launch& where, const AttentionPrefillArgs& a) {
  launch<prepare_rows>(where, false, dim3(static_cast<unsigned>(a.rows.count)), kThreads, 0, a);
  const int tokens = tile_tokens(a.query_heads / a.cache.kv_heads);
  const auto segments = static_cast<unsigned>(a.segment_count);
  dim3 grid(static_cast<unsigned>((a.longest_segment + tokens - 2) / tokens + 1),
            static_cast<unsigned>(a.cache.kv_heads), segments);
  // A block a range while there is room for what they give: with few rows, that is.
  const bool split =
      (a.rows.count / tokens + 2 * a.segment_count) * a.cache.kv_heads * kMostRanges <= a.partial_tiles;
  if (split) grid.z *= kMostRanges;
  if (where.device->hopper) {
    hopper_attention(where, a, grid, split);
  } else if (split) {
    launch<attend_tile<true>>(where, false, grid, kThreads, kShared, a);
  } else {
    launch<attend_tile<false>>(where, false, grid, kThreads, kShared, a);
  }
  grid.z = segments * kJoinParts;
  if (split) launch<join_ranges>(where, false, grid, kThreads, 0, a);
}

}  // namespace lily::cuda
