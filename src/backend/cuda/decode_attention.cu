// Attention of one new token: query heads of a KV head together, K/V rows cut into a number of ranges that
// depends on the position alone, then joined.
#include "backend/cuda/attention_heads.cuh"
#include "backend/cuda/digits.cuh"
#include "backend/cuda/launch.cuh"

namespace lily::cuda {
namespace {

constexpr int kWarps = 8;  // a query head each, where eight share a KV head
constexpr int kThreads = kWarps * 32;
constexpr int kBlock = 16;  // K/V rows a warp takes at a time
constexpr float kNothing = -1e30F;
constexpr int kOutStride = kHeadDim + 4;  // spreads the queries over the banks
constexpr std::size_t kOutBytes = sizeof(float) * kWarps * kMaxQueryGroup * kOutStride;
static_assert(kWarps == kMaxQueryGroup);

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

// A warp's query head and, of the range with the token itself, its new K row (warp 0) or V row (warp 1).
// What does not depend on this step is loaded before the wait.
struct NewRows {
  Eight gain{};
  Eight k_gain{};
  Rotation rotation;
  __device__ NewRows(const AttentionDecodeArgs& a, int row) : rotation(a.rows.rope + row * kRotary) {
    const int lane = static_cast<int>(threadIdx.x & 31);
    gain = load_eight(a.q_gain + lane * 8);
    k_gain = load_eight(a.k_gain + lane * 8);
  }
  /// `query`: [8, 256] in bf16, zeros for what is missing of eight.
  __device__ void prepare(const AttentionDecodeArgs& a, int row, int kv_head, __nv_bfloat16* new_key,
                          __nv_bfloat16* new_value, __nv_bfloat16* query) const {
    const int lane = static_cast<int>(threadIdx.x & 31);
    const int warp = static_cast<int>(threadIdx.x >> 5);
    const int group = a.query_heads / a.cache.kv_heads;
    const float* projected = a.projected + static_cast<std::int64_t>(row) * a.stride;
    const float* kv = projected + a.query_heads * 2 * kHeadDim + kv_head * kHeadDim + lane * 8;
    const bool writes = warp < 2 && new_key != nullptr;
    Eight q{};
    Eight mine{};
    if (warp < group) q = load_eight(projected + (kv_head * group + warp) * 2 * kHeadDim + lane * 8);
    if (writes) mine = load_eight(kv + warp * a.cache.kv_heads * kHeadDim);
    norm_and_rotate(q, gain, a.eps, rotation);
    *reinterpret_cast<uint4*>(query + warp * kHeadDim + lane * 8) = pack8(q);
    if (!writes) return;
    if (warp == 0) norm_and_rotate(mine, k_gain, a.eps, rotation);
    *reinterpret_cast<uint4*>((warp == 0 ? new_key : new_value) + lane * 8) = pack8(mine);
  }
};

// The result of a warp's rows to out [8, kOutStride], stats [8, 2].
__device__ void keep(WarpState& w, float* out, float (*stats)[2]) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int g = lane >> 2;
  const int c = lane & 3;
  w.total += __shfl_xor_sync(0xffffffffU, w.total, 1);
  w.total += __shfl_xor_sync(0xffffffffU, w.total, 2);
  if (c == 0) {
    stats[g][0] = w.largest;
    stats[g][1] = w.total;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float* to = out + (2 * c + (e & 1)) * kOutStride + half * 128 + (e >> 1) * 64 + 8 * g;
#pragma unroll
      for (int j = 0; j < 8; j += 4) {
        *reinterpret_cast<float4*>(to + j) = make_float4(w.out[half][j][e], w.out[half][j + 1][e],
                                                         w.out[half][j + 2][e], w.out[half][j + 3][e]);
      }
    }
  }
}

// Warps' results of query head `warp` added up: sums [256] and {largest, total}.
__device__ void merge(const float* out, const float (*stats)[kMaxQueryGroup][2], int warps, float* sums,
                      float* sums_stats) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int h = static_cast<int>(threadIdx.x >> 5);
  float largest = kNothing;
  for (int i = 0; i < warps; ++i) largest = fmaxf(largest, stats[i][h][0]);
  float total = 0;
  float4 sum[2] = {};
  for (int i = 0; i < warps; ++i) {
    const float weight = exp2f(stats[i][h][0] - largest);
    total = __fmaf_rn(weight, stats[i][h][1], total);
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const float4 x = *reinterpret_cast<const float4*>(out + (i * kMaxQueryGroup + h) * kOutStride +
                                                        part * 128 + lane * 4);
      sum[part] = make_float4(__fmaf_rn(weight, x.x, sum[part].x), __fmaf_rn(weight, x.y, sum[part].y),
                              __fmaf_rn(weight, x.z, sum[part].z), __fmaf_rn(weight, x.w, sum[part].w));
    }
  }
#pragma unroll
  for (int part = 0; part < 2; ++part)
    *reinterpret_cast<float4*>(sums + h * kHeadDim + part * 128 + lane * 4) = sum[part];
  if (lane == 0) *reinterpret_cast<float2*>(sums_stats + h * 2) = make_float2(largest, total);
}

// grid (splits, Nkv, or query heads where each reads for itself, T)
__global__ void __launch_bounds__(kThreads) attend_range(AttentionDecodeArgs a) {
  LILY_DYNAMIC_SHARED(memory);
  auto* out = reinterpret_cast<float*>(memory);  // [warp, query, kOutStride]
  __shared__ __nv_bfloat16 query[kMaxQueryGroup * kHeadDim];
  __shared__ float stats[kWarps][kMaxQueryGroup][2];
  const int split = static_cast<int>(blockIdx.x);
  const int apart = a.heads_apart ? a.query_heads / a.cache.kv_heads : 1;
  const int kv_head = static_cast<int>(blockIdx.y) / apart;
  const int row = static_cast<int>(blockIdx.z);
  const int warp = static_cast<int>(threadIdx.x >> 5);
  const int position = a.rows.position[row];
  const int length = position + 1;
  const int range = range_rows(length);
  const int begin = split * range;
  const int end = begin + range < length ? begin + range : length;
  const int* pages = a.rows.pages + static_cast<std::int64_t>(a.rows.table[row]) * a.rows.page_stride;
  prefetch_range(a, pages, begin, end < position ? end : position, kv_head);
  const NewRows rows(a, row);
  wait_for_previous();
  let_next_start();
  if (begin >= length) return;

  const bool last = end == length;
  rows.prepare(a, row, kv_head, last ? cache_row(a.cache, pages, position, false, kv_head) : nullptr,
               last ? cache_row(a.cache, pages, position, true, kv_head) : nullptr, query);
  __syncthreads();

  const int warps =
      (end - begin + kBlock - 1) / kBlock < kWarps ? (end - begin + kBlock - 1) / kBlock : kWarps;
  if (warp < warps) {
    WarpState w;
    for (int first = begin + warp * kBlock; first < end; first += kWarps * kBlock) {
      attend(w, cache_row(a.cache, pages, first, false, kv_head),
             cache_row(a.cache, pages, first, true, kv_head), query, end - first);
    }
    keep(w, out + warp * kMaxQueryGroup * kOutStride, stats[warp]);
  }
  __syncthreads();
  const std::int64_t at =
      (static_cast<std::int64_t>(row) * a.cache.kv_heads + kv_head) * kAttentionSplits + split;
  if (a.heads_apart && warp != static_cast<int>(blockIdx.y) % apart) return;
  merge(out, stats, warps, a.partial + at * kMaxQueryGroup * kHeadDim,
        a.partial_max + at * kMaxQueryGroup * 2);
}

constexpr int kJoinGroups = 4;  // of 64 threads, which take every fourth range each, four dims a thread
constexpr int kGroupRanges = kAttentionSplits / kJoinGroups;

// What each of this group's ranges counts: exp2(largest - largest of all) / total. By every warp for itself.
__device__ void range_weights(const float* partial_max, std::int64_t first, int splits, int group,
                              float (&weights)[kGroupRanges]) {
  static_assert(kAttentionSplits == 64);  // two ranges a lane
  const int lane = static_cast<int>(threadIdx.x & 31);
  float2 stats[2];
  for (int i = 0; i < 2; ++i) {
    const int split = lane + i * 32;
    stats[i] = split < splits
                   ? __ldcg(reinterpret_cast<const float2*>(partial_max) + first + split * kMaxQueryGroup)
                   : make_float2(kNothing, 0);
  }
  float largest = fmaxf(stats[0].x, stats[1].x);
  for (int step = 16; step > 0; step >>= 1)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, step));
  float mine[2] = {exp2f(stats[0].x - largest), exp2f(stats[1].x - largest)};
  const float inverse = 1.0F / warp_sum(__fmaf_rn(mine[0], stats[0].y, mine[1] * stats[1].y));
#pragma unroll
  for (int i = 0; i < kGroupRanges; ++i) {
    const int split = group + i * kJoinGroups;
    weights[i] = __shfl_sync(0xffffffffU, mine[i * kJoinGroups / 32], split & 31) * inverse;
  }
}

// Joins the ranges and applies the output gate. grid (Nq, T)
__global__ void __launch_bounds__(kHeadDim) join_ranges(AttentionDecodeArgs a) {
  __shared__ float4 sums[kJoinGroups][kHeadDim / 4];
  const int head = static_cast<int>(blockIdx.x);
  const int row = static_cast<int>(blockIdx.y);
  const int group = static_cast<int>(threadIdx.x) / (kHeadDim / 4);
  const int quad = static_cast<int>(threadIdx.x) % (kHeadDim / 4);
  const int heads = a.query_heads / a.cache.kv_heads;
  const int length = a.rows.position[row] + 1;
  const int range = range_rows(length);
  const int splits = (length + range - 1) / range;
  wait_for_previous();
  let_next_start();
  // All loads at once: what this costs is their latency.
  const std::int64_t first =
      ((static_cast<std::int64_t>(row) * a.cache.kv_heads + head / heads) * kAttentionSplits) *
          kMaxQueryGroup +
      head % heads;
  const auto* partial = reinterpret_cast<const float4*>(a.partial + first * kHeadDim) + quad;
  constexpr int kStride = kMaxQueryGroup * kHeadDim / 4;  // a range's
  float4 x[kGroupRanges];
#pragma unroll
  for (int i = 0; i < kGroupRanges; ++i) {
    const int split = group + i * kJoinGroups;
    x[i] = split < splits ? __ldcg(partial + split * kStride) : make_float4(0, 0, 0, 0);
  }
  const float4 gate =
      __ldcg(reinterpret_cast<const float4*>(a.projected + static_cast<std::int64_t>(row) * a.stride +
                                             (head * 2 + 1) * kHeadDim) +
             quad);
  float weights[kGroupRanges];
  range_weights(a.partial_max, first, splits, group, weights);
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int i = 0; i < kGroupRanges; ++i) {
    sum = make_float4(__fmaf_rn(weights[i], x[i].x, sum.x), __fmaf_rn(weights[i], x[i].y, sum.y),
                      __fmaf_rn(weights[i], x[i].z, sum.z), __fmaf_rn(weights[i], x[i].w, sum.w));
  }
  sums[group][quad] = sum;
  __syncthreads();
  if (group != 0) return;
#pragma unroll
  for (int i = 1; i < kJoinGroups; ++i) {
    const float4 other = sums[i][quad];
    sum = make_float4(sum.x + other.x, sum.y + other.y, sum.z + other.z, sum.w + other.w);
  }
  sums[0][quad] = make_float4(sum.x * sigmoid(gate.x), sum.y * sigmoid(gate.y), sum.z * sigmoid(gate.z),
                              sum.w * sigmoid(gate.w));
  __syncwarp();  // a warp's 128 dims are 32 quads of digits
  const int groups = a.query_heads * (kHeadDim / kGroup);
  const float4 mine = quad_of(reinterpret_cast<const float*>(sums[0]), quad);
  put_quad<Parts::kUnits>(Digits(a.out + row * digits_bytes(groups), groups), head * (kHeadDim / 4) + quad,
                          mine, 0, true);
}

}  // namespace

void attention_decode(const Launch& where, const AttentionDecodeArgs& a) {
  const auto rows = static_cast<unsigned>(a.rows.count);
  const auto heads = static_cast<unsigned>(a.heads_apart ? a.query_heads : a.cache.kv_heads);
  launch<attend_range>(where, true, dim3(kAttentionSplits, heads, rows), kThreads, kOutBytes, a);
  launch<join_ranges>(where, true, dim3(static_cast<unsigned>(a.query_heads), rows), kHeadDim, 0, a);
}

}  // namespace lily::cuda
