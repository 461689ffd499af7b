// Causal attention over the rows of prefill segments, on mma.sync, with the query heads of a KV head packed
// into the row tile: 128 rows are 16 tokens of 8 heads. K and V come through shared memory 32 rows at a time,
// V while the scores are computed, the next K while the output is. 96 KB: two of that would leave no room on
// sm_86 and sm_89.
//
// A query meets the keys in tiles from position 0 on, whatever segment it is in, so a prompt's rows get the
// same bits however it is cut.
#include "backend/cuda/attention_heads.cuh"
#include "backend/cuda/launch.cuh"

namespace lily::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kTileRows = kWarps * 16;
constexpr int kKeys = 32;
constexpr int kRowBytes = kHeadDim * 2;
constexpr std::size_t kShared = (kTileRows + 2 * kKeys) * kRowBytes;
constexpr float kNothing = -1e30F;

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

/// Running softmax of a lane's two rows (g and g + 8).
struct Softmax {
  float largest[2] = {kNothing, kNothing};
  float total[2] = {0, 0};

  // Scores to probabilities in A registers; `limit`: last key of each row.
  __device__ __forceinline__ void update(float (&s)[4][4], int first_key, const int (&limit)[2],
                                         std::uint32_t (&p)[2][4], float (&shrink)[2]) {
    const int c = static_cast<int>(threadIdx.x & 3);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = largest[r];
#pragma unroll
      for (int n = 0; n < 4; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[n][2 * r + e];
          x = first_key + n * 8 + 2 * c + e <= limit[r] ? x * kScoreScale : kNothing;
          most = fmaxf(most, x);
        }
      }
      most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, 2));
      shrink[r] = exp2f(largest[r] - most);
      largest[r] = most;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < 4; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[n][2 * r + e];
          x = exp2f(x - most);  // of a masked key: 0, since every row has met key 0
          sum += x;
        }
      }
      total[r] = __fmaf_rn(total[r], shrink[r], sum);
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      p[k][0] = pack_bf16(s[2 * k][0], s[2 * k][1]);
      p[k][1] = pack_bf16(s[2 * k][2], s[2 * k][3]);
      p[k][2] = pack_bf16(s[2 * k + 1][0], s[2 * k + 1][1]);
      p[k][3] = pack_bf16(s[2 * k + 1][2], s[2 * k + 1][3]);
    }
  }
};

__device__ void load_queries(const AttentionPrefillArgs& a, const SegmentRows& segment, std::uint8_t* queries,
                             int first, int group, int kv_head) {
  for (int i = static_cast<int>(threadIdx.x); i < kTileRows * 32; i += kThreads) {
    const int packed = first + i / 32;
    const int token = packed / group;
    uint4 v = make_uint4(0, 0, 0, 0);
    if (token < segment.rows) {
      const std::int64_t head = static_cast<std::int64_t>(segment.first_row + token) * a.query_heads +
                                kv_head * group + packed % group;
      v = *reinterpret_cast<const uint4*>(a.query + head * kHeadDim + (i % 32) * 8);
    }
    *reinterpret_cast<uint4*>(chunk_at(queries, i / 32, i % 32)) = v;
  }
}

__device__ __forceinline__ void store_output(const AttentionPrefillArgs& a, const SegmentRows& segment,
                                             const float (&o)[32][4], const Softmax& softmax, int packed_row,
                                             int group, int kv_head) {
  const int c = static_cast<int>(threadIdx.x & 3);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float total = softmax.total[r];
    total += __shfl_xor_sync(0xffffffffU, total, 1);
    total += __shfl_xor_sync(0xffffffffU, total, 2);
    const int packed = packed_row + r * 8;
    const int token = packed / group;
    if (token >= segment.rows) continue;
    const std::int64_t row = segment.first_row + token;
    const int head = kv_head * group + packed % group;
    const float inverse = 1.0F / total;
    const __nv_bfloat16* gate = a.projected + row * a.stride + (head * 2 + 1) * kHeadDim + 2 * c;
    __nv_bfloat16* out = a.out + (row * a.query_heads + head) * kHeadDim + 2 * c;
#pragma unroll
    for (int n = 0; n < 32; ++n) {
      const std::uint32_t z = *reinterpret_cast<const std::uint32_t*>(gate + n * 8);
      *reinterpret_cast<std::uint32_t*>(out + n * 8) = pack_bf16(
          o[n][2 * r] * inverse * sigmoid(bf16_low(z)), o[n][2 * r + 1] * inverse * sigmoid(bf16_high(z)));
    }
  }
}

// grid (row tiles of the longest segment, Nkv, segments)
__global__ void __launch_bounds__(kThreads, 1) attend_tile(AttentionPrefillArgs a) {
  LILY_DYNAMIC_SHARED(memory);
  std::uint8_t* queries = memory;
  std::uint8_t* keys = memory + kTileRows * kRowBytes;
  std::uint8_t* values = keys + kKeys * kRowBytes;
  const SegmentRows segment = a.segments[blockIdx.z];
  const int kv_head = static_cast<int>(blockIdx.y);
  const int group = a.query_heads / a.cache.kv_heads;
  // The last rows have the most keys: they go first.
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kTileRows;
  if (first >= segment.rows * group) return;
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int warp_row = static_cast<int>(threadIdx.x >> 5) * 16;
  const int packed_row = first + warp_row + (lane >> 2);
  const int last_token = min((first + kTileRows - 1) / group, segment.rows - 1);
  const KeyRange range{a.rows.pages + static_cast<std::int64_t>(segment.table) * a.rows.page_stride,
                       segment.position + last_token + 1, kv_head};
  const int limit[2] = {segment.position + packed_row / group, segment.position + (packed_row + 8) / group};
  const int warp_last = segment.position + (first + warp_row + 15) / group;

  load_tile(a, range, keys, 0, false);
  load_tile(a, range, values, 0, true);
  load_queries(a, segment, queries, first, group, kv_head);
  Softmax softmax;
  float o[32][4];
#pragma unroll
  for (int n = 0; n < 32; ++n) o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0;
  for (int key = 0; key < range.end; key += kKeys) {
    const bool needed = key <= warp_last;  // else this warp's rows see none of these keys
    float s[4][4];
    wait_for_copies<1>();
    __syncthreads();
    if (needed) scores(s, queries, keys, warp_row);
    __syncthreads();
    load_tile(a, range, keys, key + kKeys, false);
    std::uint32_t p[2][4];
    if (needed) {
      float shrink[2];
      softmax.update(s, key, limit, p, shrink);
#pragma unroll
      for (int n = 0; n < 32; ++n) {
        o[n][0] *= shrink[0];
        o[n][1] *= shrink[0];
        o[n][2] *= shrink[1];
        o[n][3] *= shrink[1];
      }
    }
    wait_for_copies<1>();
    __syncthreads();
    if (needed) add_values(o, p, values);
    __syncthreads();
    load_tile(a, range, values, key + kKeys, true);
  }
  store_output(a, segment, o, softmax, packed_row, group, kv_head);
}

}  // namespace

void attention_prefill(const Launch& where, const AttentionPrefillArgs& a) {
  launch<prepare_rows>(where, false, dim3(static_cast<unsigned>(a.rows.count)), kThreads, 0, a);
  const int group = a.query_heads / a.cache.kv_heads;
  const int tiles = (a.longest_segment * group + kTileRows - 1) / kTileRows;
  launch<attend_tile>(where, false,
                      dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(a.cache.kv_heads),
                           static_cast<unsigned>(a.segment_count)),
                      kThreads, kShared, a);
}

}  // namespace lily::cuda
