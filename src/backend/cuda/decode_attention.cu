// Attention of one new token: query heads of a KV head together, K/V rows cut into a number of ranges that
// depends on the position alone, then joined.
#include "backend/cuda/attention_heads.cuh"
#include "backend/cuda/launch.cuh"

namespace lily::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kBlock = 16;  // K/V rows a warp takes at a time
constexpr float kNothing = -1e30F;

// K/V rows of a range: at least a block, and so many that kAttentionSplits ranges cover all.
__device__ __forceinline__ int range_rows(int length) {
  const int rows = (length + kAttentionSplits - 1) / kAttentionSplits;
  return (rows + kBlock - 1) / kBlock * kBlock;
}

struct WarpState {
  float largest = kNothing;  // of query g, base 2
  float total = 0;
  float out[2][8][4] = {};  // [128 dims][tile j][row g: queries 2c, 2c + 1; row g + 8: the same]
};

struct ValueRows {
  uint4 v[4][2];  // tokens 2c, 2c + 1, 2c + 8, 2c + 9; dims 8g and 64 + 8g of 128
};
__device__ __forceinline__ void load_values(ValueRows& rows, const __nv_bfloat16* values, int valid) {
  const int lane = static_cast<int>(threadIdx.x & 31);
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    const int token = 2 * (lane & 3) + (t & 1) + (t >> 1) * 8;
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      // Rows past the end hold whatever was there before: 0 x NaN must not happen.
      rows.v[t][part] = token < valid ? __ldcg(reinterpret_cast<const uint4*>(values + token * kHeadDim +
                                                                              part * 64 + (lane >> 2) * 8))
                                      : make_uint4(0, 0, 0, 0);
    }
  }
}

// O^T += V^T P^T for 128 dims: row g of tile j is dim 8g + j, row g + 8 dim 64 + 8g + j.
__device__ __forceinline__ void add_values(float (&out)[8][4], const ValueRows& rows, std::uint32_t p0,
                                           std::uint32_t p1, float shrink0, float shrink1) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const auto word = [&](int t, int part) {
      const uint4 x = rows.v[t][part];
      return j < 2 ? x.x : j < 4 ? x.y : j < 6 ? x.z : x.w;
    };
    const unsigned order = (j & 1) != 0 ? 0x7632U : 0x5410U;
    const std::uint32_t a[4] = {
        __byte_perm(word(0, 0), word(1, 0), order), __byte_perm(word(0, 1), word(1, 1), order),
        __byte_perm(word(2, 0), word(3, 0), order), __byte_perm(word(2, 1), word(3, 1), order)};
    out[j][0] *= shrink0;
    out[j][1] *= shrink1;
    out[j][2] *= shrink0;
    out[j][3] *= shrink1;
    mma_bf16(out[j], a, p0, p1);
  }
}

// 16 K/V rows. Scores have queries as rows (g) and tokens as columns; the output is transposed: A is V with
// dims as rows, B the probabilities, whose registers are those of the scores. Dims are dealt so that a lane
// loads 16 consecutive bytes: in scores, inputs 8c..8c + 7 of each 32. All loads go out before the first use.
__device__ __forceinline__ void attend(WarpState& w, const __nv_bfloat16* keys, const __nv_bfloat16* values,
                                       const __nv_bfloat16* query, int valid) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int g = lane >> 2;
  const int c = lane & 3;
  uint4 k[8][2];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile)
      k[i][tile] = __ldcg(reinterpret_cast<const uint4*>(keys + (tile * 8 + g) * kHeadDim + i * 32 + c * 8));
  }
  ValueRows rows[2];
  load_values(rows[0], values, valid);
  load_values(rows[1], values + 128, valid);

  float s[2][4] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint4 q = *reinterpret_cast<const uint4*>(query + g * kHeadDim + i * 32 + c * 8);
    const std::uint32_t first[4] = {q.x, 0, q.y, 0};
    const std::uint32_t second[4] = {q.z, 0, q.w, 0};
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      mma_bf16(s[tile], first, k[i][tile].x, k[i][tile].y);
      mma_bf16(s[tile], second, k[i][tile].z, k[i][tile].w);
    }
  }
  float largest = w.largest;
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      s[tile][e] = tile * 8 + 2 * c + e < valid ? s[tile][e] * kScoreScale : kNothing;
      largest = fmaxf(largest, s[tile][e]);
    }
  }
  largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, 1));
  largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, 2));
  const float shrink = exp2f(w.largest - largest);
  w.largest = largest;
  float sum = 0;
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      s[tile][e] = tile * 8 + 2 * c + e < valid ? exp2f(s[tile][e] - largest) : 0.0F;
      sum += s[tile][e];
    }
  }
  w.total = __fmaf_rn(w.total, shrink, sum);  // of this lane's tokens; lanes are added at the end
  const std::uint32_t p0 = pack_bf16(s[0][0], s[0][1]);
  const std::uint32_t p1 = pack_bf16(s[1][0], s[1][1]);
  const float shrink0 = __shfl_sync(0xffffffffU, shrink, 8 * c);
  const float shrink1 = __shfl_sync(0xffffffffU, shrink, 8 * c + 4);
  add_values(w.out[0], rows[0], p0, p1, shrink0, shrink1);
  add_values(w.out[1], rows[1], p0, p1, shrink0, shrink1);
}

// Asks for a range's rows, but not the token's own, which this step writes.
__device__ void prefetch_range(const AttentionDecodeArgs& a, const int* pages, int begin, int end,
                               int kv_head) {
  constexpr int kLine = 64;  // bf16 of 128 bytes
  for (int i = static_cast<int>(threadIdx.x); i < (end - begin) * (2 * kHeadDim / kLine); i += kThreads) {
    const int token = begin + i / (2 * kHeadDim / kLine);
    const int line = i % (2 * kHeadDim / kLine);
    const bool value = line >= kHeadDim / kLine;
    prefetch_l2(cache_row(a.cache, pages, token, value, kv_head) + line % (kHeadDim / kLine) * kLine);
  }
}

// The query heads in bf16, zeros for what is missing of eight.
__device__ void prepare_queries(const AttentionDecodeArgs& a, const float* projected, const float* rope,
                                int kv_head, int group, __nv_bfloat16* query) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  for (int h = static_cast<int>(threadIdx.x >> 5); h < kMaxQueryGroup; h += kWarps) {
    float x[8] = {};
    if (h < group) {
      const float* source = projected + (kv_head * group + h) * 2 * kHeadDim + lane * 8;
      for (int i = 0; i < 8; ++i) x[i] = __ldcg(source + i);
    }
    norm_and_rotate(x, a.q_gain, a.eps, rope);
    *reinterpret_cast<uint4*>(query + h * kHeadDim + lane * 8) = pack8(x);
  }
}

// The token's own K and V rows: one warp each.
__device__ void store_row(const AttentionDecodeArgs& a, const float* projected, const float* rope,
                          const int* pages, int position, int kv_head) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int warp = static_cast<int>(threadIdx.x >> 5);
  if (warp > 1) return;
  const bool value = warp == 1;
  const int kv_dim = a.cache.kv_heads * kHeadDim;
  const float* source =
      projected + a.query_heads * 2 * kHeadDim + (value ? kv_dim : 0) + kv_head * kHeadDim + lane * 8;
  float x[8];
  for (int i = 0; i < 8; ++i) x[i] = __ldcg(source + i);
  if (!value) norm_and_rotate(x, a.k_gain, a.eps, rope);
  *reinterpret_cast<uint4*>(cache_row(a.cache, pages, position, value, kv_head) + lane * 8) = pack8(x);
}

// grid (splits, Nkv, T)
__global__ void __launch_bounds__(kThreads) attend_range(AttentionDecodeArgs a) {
  __shared__ __nv_bfloat16 query[kMaxQueryGroup * kHeadDim];
  __shared__ float out[kWarps][kMaxQueryGroup][kHeadDim];
  __shared__ float stats[kWarps][kMaxQueryGroup][2];
  const int split = static_cast<int>(blockIdx.x);
  const int kv_head = static_cast<int>(blockIdx.y);
  const int row = static_cast<int>(blockIdx.z);
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int warp = static_cast<int>(threadIdx.x >> 5);
  const int position = a.rows.position[row];
  const int length = position + 1;
  const int range = range_rows(length);
  const int begin = split * range;
  const int end = begin + range < length ? begin + range : length;
  const int* pages = a.rows.pages + static_cast<std::int64_t>(a.rows.table[row]) * a.rows.page_stride;
  prefetch_range(a, pages, begin, end < position ? end : position, kv_head);
  wait_for_previous();
  let_next_start();
  if (begin >= length) return;

  const float* projected = a.projected + static_cast<std::int64_t>(row) * a.stride;
  const float* rope = a.rows.rope + row * kRotary;
  prepare_queries(a, projected, rope, kv_head, a.query_heads / a.cache.kv_heads, query);
  if (end == length) store_row(a, projected, rope, pages, position, kv_head);
  __syncthreads();

  WarpState w;
  for (int first = begin + warp * kBlock; first < end; first += kWarps * kBlock) {
    attend(w, cache_row(a.cache, pages, first, false, kv_head),
           cache_row(a.cache, pages, first, true, kv_head), query, end - first);
  }
  w.total += __shfl_xor_sync(0xffffffffU, w.total, 1);
  w.total += __shfl_xor_sync(0xffffffffU, w.total, 2);
  const int g = lane >> 2;
  const int c = lane & 3;
  if (c == 0) {
    stats[warp][g][0] = w.largest;
    stats[warp][g][1] = w.total;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        out[warp][2 * c + (e & 1)][half * 128 + (e >> 1) * 64 + 8 * g + j] = w.out[half][j][e];
    }
  }
  __syncthreads();

  const std::int64_t at =
      (static_cast<std::int64_t>(row) * a.cache.kv_heads + kv_head) * kAttentionSplits + split;
  for (int h = 0; h < kMaxQueryGroup; ++h) {
    float largest = kNothing;
    for (int i = 0; i < kWarps; ++i) largest = fmaxf(largest, stats[i][h][0]);
    float weight[kWarps];
    float total = 0;
    for (int i = 0; i < kWarps; ++i) {
      weight[i] = exp2f(stats[i][h][0] - largest);
      total = __fmaf_rn(weight[i], stats[i][h][1], total);
    }
    for (int d = static_cast<int>(threadIdx.x); d < kHeadDim; d += kThreads) {
      float sum = 0;
      for (int i = 0; i < kWarps; ++i) sum = __fmaf_rn(weight[i], out[i][h][d], sum);
      a.partial[(at * kMaxQueryGroup + h) * kHeadDim + d] = sum;
    }
    if (threadIdx.x == 0) {
      a.partial_max[(at * kMaxQueryGroup + h) * 2] = largest;
      a.partial_max[(at * kMaxQueryGroup + h) * 2 + 1] = total;
    }
  }
}

// Joins the ranges and applies the output gate. grid (Nq, T), a thread a dim.
__global__ void __launch_bounds__(kHeadDim) join_ranges(AttentionDecodeArgs a) {
  __shared__ float weights[kAttentionSplits];
  __shared__ float inverse;
  const int head = static_cast<int>(blockIdx.x);
  const int row = static_cast<int>(blockIdx.y);
  const int d = static_cast<int>(threadIdx.x);
  const int group = a.query_heads / a.cache.kv_heads;
  const int length = a.rows.position[row] + 1;
  const int range = range_rows(length);
  const int splits = (length + range - 1) / range;
  wait_for_previous();
  let_next_start();
  const std::int64_t first =
      ((static_cast<std::int64_t>(row) * a.cache.kv_heads + head / group) * kAttentionSplits) *
          kMaxQueryGroup +
      head % group;
  const float gate =
      __ldcg(a.projected + static_cast<std::int64_t>(row) * a.stride + (head * 2 + 1) * kHeadDim + d);
  if (threadIdx.x < 32) {  // two ranges a lane
    static_assert(kAttentionSplits == 64);
    float2 stats[2];
    for (int i = 0; i < 2; ++i) {
      const int split = static_cast<int>(threadIdx.x) + i * 32;
      stats[i] = make_float2(kNothing, 0);
      if (split < splits)
        stats[i] = __ldcg(reinterpret_cast<const float2*>(a.partial_max) + first + split * kMaxQueryGroup);
    }
    float largest = fmaxf(stats[0].x, stats[1].x);
    for (int step = 16; step > 0; step >>= 1)
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, step));
    float total = 0;
    for (int i = 0; i < 2; ++i) {
      const float weight = exp2f(stats[i].x - largest);
      weights[threadIdx.x + i * 32] = weight;
      total = __fmaf_rn(weight, stats[i].y, total);
    }
    total = warp_sum(total);
    if (threadIdx.x == 0) inverse = 1.0F / total;
  }
  __syncthreads();
  const float* partial = a.partial + first * kHeadDim + d;
  float sum = 0;
#pragma unroll 16
  for (int i = 0; i < splits; ++i)
    sum = __fmaf_rn(weights[i], __ldcg(partial + static_cast<std::int64_t>(i) * kMaxQueryGroup * kHeadDim),
                    sum);
  a.out[(static_cast<std::int64_t>(row) * a.query_heads + head) * kHeadDim + d] =
      sum * inverse * sigmoid(gate);
}

}  // namespace

void attention_decode(const Launch& where, const AttentionDecodeArgs& a) {
  const auto rows = static_cast<unsigned>(a.rows.count);
  launch<attend_range>(where, true, dim3(kAttentionSplits, static_cast<unsigned>(a.cache.kv_heads), rows),
                       kThreads, 0, a);
  launch<join_ranges>(where, true, dim3(static_cast<unsigned>(a.query_heads), rows), kHeadDim, 0, a);
}

}  // namespace lily::cuda
