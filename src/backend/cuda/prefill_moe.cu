// Which rows go to which expert, found on the device; tiles of rows for the grouped products; and the
// weighted sum of what the experts return.
#include "backend/cuda/choose_experts.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/ptx.cuh"
#include "backend/cuda/tiles.h"

namespace lily::cuda {
namespace {

constexpr int kRouteWarps = 8;

// A warp a row.
__global__ void __launch_bounds__(kRouteWarps * 32) choose_kernel(RouteArgs a) {
  const int row = static_cast<int>(blockIdx.x) * kRouteWarps + static_cast<int>(threadIdx.x >> 5);
  const int lane = static_cast<int>(threadIdx.x & 31);
  if (row >= a.rows) return;
  const Chosen chosen = choose_experts(
      [&](int expert) { return __ldcg(a.logits + static_cast<std::int64_t>(row) * a.stride + expert); },
      a.experts, a.experts_per_token);
  if (lane < a.experts_per_token) {
    const int at = row * a.experts_per_token + lane;
    a.chosen[at] = chosen.expert;
    a.weight[at] = chosen.weight;
    a.place[at] = atomicAdd(a.counts + chosen.expert, 1);
  }
}

// First list row of each expert, then every choice to its place. A row's place within its expert is in the
// order of the atomic additions: the products do not depend on it.
__global__ void __launch_bounds__(kMaxExperts) place_kernel(RouteArgs a) {
  __shared__ int first[kMaxExperts];
  const int expert = static_cast<int>(threadIdx.x);
  const int count = expert < a.experts ? a.counts[expert] : 0;
  first[expert] = count;
  __syncthreads();
  for (int d = 1; d < kMaxExperts; d *= 2) {
    const int before = expert >= d ? first[expert - d] : 0;
    __syncthreads();
    first[expert] += before;
    __syncthreads();
  }
  const int choices = a.rows * a.experts_per_token;
  for (int i = static_cast<int>(blockIdx.x * kMaxExperts + threadIdx.x); i < choices;
       i += static_cast<int>(gridDim.x) * kMaxExperts) {
    const int chosen = a.chosen[i];
    const int place = first[chosen] - a.counts[chosen] + a.place[i];
    a.place[i] = place;
    a.row_index[place] = i / a.experts_per_token;
    a.row_weight[place] = a.weight[i];
  }
}

constexpr int kTileThreads = kMaxExperts;

// An expert's rows are split evenly into tiles of at most `most_rows`, their height rounded up to one that
// has a kernel. Tall tiles first: blocks take tiles round robin, so a round is of one height and the last
// rounds are short; an expert's tiles stay neighbours and share its weights in the L2.
__global__ void __launch_bounds__(kTileThreads) tiles_kernel(TileListArgs a) {
  __shared__ int rows_before[kTileThreads];
  __shared__ int tiles_before[kTileThreads];
  const int e = static_cast<int>(threadIdx.x);
  const int rows = e >= a.experts ? 0 : a.counts != nullptr ? a.counts[e] : a.rows;
  const int parts = (rows + a.most_rows - 1) / a.most_rows;
  const int height = parts > 0 ? tile_height((rows + parts - 1) / parts, a.set) : 0;
  rows_before[e] = rows;
  __syncthreads();
  for (int d = 1; d < kTileThreads; d *= 2) {
    const int x = e >= d ? rows_before[e - d] : 0;
    __syncthreads();
    rows_before[e] += x;
    __syncthreads();
  }
  const int first = rows_before[e] - rows;
  int base = 0;
  for (int h = a.most_rows / 16; h >= 1; --h) {
    tiles_before[e] = height == h ? parts : 0;
    __syncthreads();
    for (int d = 1; d < kTileThreads; d *= 2) {
      const int x = e >= d ? tiles_before[e - d] : 0;
      __syncthreads();
      tiles_before[e] += x;
      __syncthreads();
    }
    if (height == h) {
      int done = 0;
      for (int i = 0; i < parts; ++i) {
        const int n = (rows - done + (parts - i) - 1) / (parts - i);
        a.tiles[base + tiles_before[e] - parts + i] = {e, first + done, n, h};
        done += n;
      }
    }
    base += tiles_before[kTileThreads - 1];
    __syncthreads();
  }
  if (e == 0) *a.count = base;
}

constexpr int kCombineThreads = 256;

__global__ void __launch_bounds__(kCombineThreads) combine_kernel(CombineArgs a) {
  const std::int64_t row = blockIdx.x;
  __shared__ int place[kMaxExpertsPerToken];
  if (threadIdx.x < static_cast<unsigned>(a.experts_per_token))
    place[threadIdx.x] = a.place[row * a.experts_per_token + threadIdx.x];
  __syncthreads();
  const float share = sigmoid(a.shared_gate[row * a.shared_gate_stride]);
  for (int i = static_cast<int>(threadIdx.x); i < a.hidden / 4; i += kCombineThreads) {
    float4* x = reinterpret_cast<float4*>(a.residual + row * a.hidden) + i;
    const uint2 s = reinterpret_cast<const uint2*>(a.shared_out + row * a.hidden)[i];
    float4 sum = *x;
    float4 experts = make_float4(0, 0, 0, 0);
    for (int k = 0; k < a.experts_per_token; ++k) {
      const uint2 y =
          reinterpret_cast<const uint2*>(a.expert_out + static_cast<std::int64_t>(place[k]) * a.hidden)[i];
      experts.x += bf16_low(y.x);
      experts.y += bf16_high(y.x);
      experts.z += bf16_low(y.y);
      experts.w += bf16_high(y.y);
    }
    sum.x += __fmaf_rn(share, bf16_low(s.x), experts.x);
    sum.y += __fmaf_rn(share, bf16_high(s.x), experts.y);
    sum.z += __fmaf_rn(share, bf16_low(s.y), experts.z);
    sum.w += __fmaf_rn(share, bf16_high(s.y), experts.w);
    *x = sum;
  }
}

}  // namespace

void route(const Launch& where, const RouteArgs& a) {
  note_error(cudaMemsetAsync(a.counts, 0, sizeof(int) * static_cast<std::size_t>(a.experts), where.stream),
             "cudaMemsetAsync");
  const auto rows = static_cast<unsigned>(a.rows);
  launch<choose_kernel>(where, false, dim3((rows + kRouteWarps - 1) / kRouteWarps), kRouteWarps * 32, 0, a);
  const unsigned blocks = (rows * static_cast<unsigned>(a.experts_per_token) + kMaxExperts - 1) / kMaxExperts;
  launch<place_kernel>(where, false, dim3(blocks), kMaxExperts, 0, a);
}
void list_tiles(const Launch& where, const TileListArgs& a) {
  launch<tiles_kernel>(where, false, dim3(1), kTileThreads, 0, a);
}
int most_tiles(int rows, int experts) {
  return rows / 16 + experts + 1;
}
void combine(const Launch& where, const CombineArgs& a) {
  launch<combine_kernel>(where, false, dim3(static_cast<unsigned>(a.rows)), kCombineThreads, 0, a);
}

}  // namespace lily::cuda
