// The gated delta rule of a prompt token after token, in place of chunks: what `lily ablate` compares them
// to. As decoding does it: a block owns 32 of a head's columns, its part of the state is 16 floats a thread.
#include "backend/cuda/launch.cuh"
#include "backend/cuda/ptx.cuh"

namespace lily::cuda {
namespace {

constexpr int kColumns = 32;
constexpr int kWarps = 8;
constexpr int kDepth = kLinearDim / kWarps;  // rows of the state a thread holds

// grid (4 column blocks, Hv, segments). S = g S; S += k (v - S^T k) beta; o = S^T q.
__global__ void __launch_bounds__(kWarps * 32) delta_sequential_kernel(DeltaPrefillArgs a) {
  __shared__ float query[kLinearDim];
  __shared__ float key[kLinearDim];
  __shared__ float sums[2][kWarps][kColumns];
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int warp = static_cast<int>(threadIdx.x >> 5);
  const int column = static_cast<int>(blockIdx.x) * kColumns + lane;
  const int head = static_cast<int>(blockIdx.y);
  const int key_head = head / (a.value_heads / a.key_heads);
  const SegmentRows segment = a.segments[blockIdx.z];
  float* memory = a.state.layer + segment.slot * a.state.stride +
                  (static_cast<std::int64_t>(head) * kLinearDim + warp * kDepth) * kLinearDim + column;
  float state[kDepth];
#pragma unroll
  for (int i = 0; i < kDepth; ++i) state[i] = memory[i * kLinearDim];
  for (int i = 0; i < segment.rows; ++i) {
    const std::int64_t row = segment.first_row + i;
    const std::int64_t at = (row * a.key_heads + key_head) * kLinearDim;
    __syncthreads();  // the token before has been read
    if (threadIdx.x < kLinearDim) {
      query[threadIdx.x] = a.query[at + threadIdx.x];
    } else {
      key[threadIdx.x - kLinearDim] = a.key[at + threadIdx.x - kLinearDim];
    }
    float* value = a.value + (row * a.value_heads + head) * kLinearDim + column;
    const float v = *value;
    const float2 gates = a.gates[row * a.value_heads + head];
    const float decay = expf(gates.x);
    __syncthreads();
    float met = 0;
#pragma unroll
    for (int j = 0; j < kDepth; ++j) {
      state[j] *= decay;
      met = __fmaf_rn(key[warp * kDepth + j], state[j], met);
    }
    sums[0][warp][lane] = met;
    __syncthreads();
    met = 0;
    for (int w = 0; w < kWarps; ++w) met += sums[0][w][lane];
    const float delta = gates.y * (v - met);
    float out = 0;
#pragma unroll
    for (int j = 0; j < kDepth; ++j) {
      state[j] = __fmaf_rn(key[warp * kDepth + j], delta, state[j]);
      out = __fmaf_rn(query[warp * kDepth + j], state[j], out);
    }
    sums[1][warp][lane] = out;
    __syncthreads();
    if (warp == 0) {
      out = 0;
      for (int w = 0; w < kWarps; ++w) out += sums[1][w][lane];
      *value = out;
    }
  }
#pragma unroll
  for (int i = 0; i < kDepth; ++i) memory[i * kLinearDim] = state[i];
}

}  // namespace

void delta_sequential(const Launch& where, const DeltaPrefillArgs& a) {
  static_assert(kWarps * 32 == 2 * kLinearDim);
  launch<delta_sequential_kernel>(where, false,
                                  dim3(kLinearDim / kColumns, static_cast<unsigned>(a.value_heads),
                                       static_cast<unsigned>(a.segment_count)),
                                  kWarps * 32, 0, a);
}

}  // namespace lily::cuda
