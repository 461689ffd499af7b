// One token through convolution, gated delta rule and gated norm, whose RMS factor over the head's four
// blocks the out-projection applies. A block owns 32 of a value head's 128 columns: its part of the state is
// 16 floats a thread, read and written once.
#include "backend/cuda/delta_rule.cuh"
#include "backend/cuda/digits.cuh"
#include "backend/cuda/launch.cuh"

namespace lily::cuda {
namespace {

constexpr int kColumns = kLinearDim / kDeltaBlocks;
static_assert(kColumns == 32);
constexpr int kWarps = 8;
constexpr int kDepth = kLinearDim / kWarps;         // rows of the state a thread holds
constexpr int kInputs = 2 * kLinearDim + kColumns;  // q, k and the block's v channels
constexpr int kThreads = kInputs;  // eight warps hold the state; every thread convolves a channel
static_assert(kThreads == (kWarps + 1) * 32);

__device__ int input_channel(const DeltaDecodeArgs& a, int i, int key_head, int value_head, int column) {
  const int key_dim = a.key_heads * kLinearDim;
  if (i < kLinearDim) return key_head * kLinearDim + i;
  if (i < 2 * kLinearDim) return key_dim + key_head * kLinearDim + i - kLinearDim;
  return 2 * key_dim + value_head * kLinearDim + column + i - 2 * kLinearDim;
}

// grid (4 column blocks, Hv, T)
__global__ void __launch_bounds__(kThreads) delta_decode_kernel(DeltaDecodeArgs a) {
  __shared__ float input[kInputs];
  __shared__ float products[3];  // |q|^2, |k|^2, q k
  __shared__ float sums[kWarps][2][kColumns];
  const int tid = static_cast<int>(threadIdx.x);
  const int lane = tid & 31;
  const int warp = tid >> 5;
  const int row = static_cast<int>(blockIdx.z);
  const int value_head = static_cast<int>(blockIdx.y);
  const int column = static_cast<int>(blockIdx.x) * kColumns;
  const int per_key = a.value_heads / a.key_heads;
  const int key_head = value_head / per_key;
  const int channels = (2 * a.key_heads + a.value_heads) * kLinearDim;
  const int position = a.rows.position[row];
  float* layer = a.state.layer + a.rows.slot[row] * a.state.stride;
  float* ring = layer + static_cast<std::int64_t>(a.value_heads) * kLinearDim * kLinearDim;

  // State and rows before the convolution are the last token's: nothing of this step is waited for.
  const bool holds_state = warp < kWarps;
  float* state = layer + (static_cast<std::int64_t>(value_head) * kLinearDim + warp * kDepth) * kLinearDim +
                 column + lane;
  float s[kDepth];
#pragma unroll
  for (int i = 0; i < kDepth; ++i) s[i] = holds_state ? __ldcg(state + i * kLinearDim) : 0.0F;
  const int channel = input_channel(a, tid, key_head, value_head, column);
  const float4 taps = *reinterpret_cast<const float4*>(a.taps + channel * 4);
  float past[3];  // one row ago, two, three
#pragma unroll
  for (int i = 0; i < 3; ++i)
    past[i] = __ldcg(ring + static_cast<std::int64_t>((position - 1 - i) & 3) * channels + channel);
  const float A_log = a.A_log[value_head];
  const float dt_bias = a.dt_bias[value_head];
  const float gain = a.gain[column + lane];

  wait_for_previous();
  let_next_start();
  const float* projected = a.projected + static_cast<std::int64_t>(row) * a.stride;
  const float current = __ldcg(projected + channel);
  const float z = __ldcg(projected + a.z_offset + value_head * kLinearDim + column + lane);
  const DeltaGates gates = delta_gates(__ldcg(projected + a.a_offset + value_head),
                                       __ldcg(projected + a.b_offset + value_head), A_log, dt_bias);
  const float decay = expf(gates.log_decay);
  input[tid] = convolve(taps, past[2], past[1], past[0], current);
  // q and k channels are read by several blocks; the oldest of the four rows is nobody's input.
  const bool owner = tid >= 2 * kLinearDim || (column == 0 && value_head % per_key == 0);
  if (owner) ring[static_cast<std::int64_t>(position & 3) * channels + channel] = current;
  __syncthreads();
  const float* q = input;
  const float* k = input + kLinearDim;
  if (warp < 3) {
    const float* x = warp == 1 ? k : q;
    const float* y = warp == 0 ? q : k;
    float sum = 0;
    for (int i = lane; i < kLinearDim; i += 32) sum = __fmaf_rn(x[i], y[i], sum);
    sum = warp_sum(sum);
    if (lane == 0) products[warp] = sum;
  }
  if (holds_state) {
    float k_state = 0;
    float q_state = 0;
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      k_state = __fmaf_rn(k[warp * kDepth + i], s[i], k_state);
      q_state = __fmaf_rn(q[warp * kDepth + i], s[i], q_state);
    }
    sums[warp][0][lane] = k_state;
    sums[warp][1][lane] = q_state;
  }
  __syncthreads();
  if (!holds_state) return;
  float k_state = 0;
  float q_state = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    k_state += sums[w][0][lane];
    q_state += sums[w][1][lane];
  }
  const float k_scale = rsqrtf(products[1] + kL2Epsilon);
  const float q_scale = rsqrtf(products[0] + kL2Epsilon) * kQueryScale;
  const float v = input[2 * kLinearDim + lane];
  const float delta = gates.beta * __fmaf_rn(-decay * k_scale, k_state, v);
  if (warp == 0) {
    const float out = __fmaf_rn(decay * q_scale, q_state, products[2] * q_scale * k_scale * delta);
    const int groups = a.value_heads * (kLinearDim / kGroup);
    const int half = value_head * kDeltaBlocks + static_cast<int>(blockIdx.x);
    const auto same = [](int i) { return i; };
    put_quad<Parts::kUnits>(Digits(a.out + row * digits_bytes(groups), groups), half * 8 + (lane & 7),
                            gather_quad(out * gain * silu(z), same), sum_squares(gather_quad(out, same)),
                            lane < 8);
  }
  const float update = k_scale * delta;
#pragma unroll
  for (int i = 0; i < kDepth; ++i)
    state[i * kLinearDim] = __fmaf_rn(decay, s[i], k[warp * kDepth + i] * update);
}

}  // namespace

void delta_decode(const Launch& where, const DeltaDecodeArgs& a) {
  const dim3 grid(kDeltaBlocks, static_cast<unsigned>(a.value_heads), static_cast<unsigned>(a.rows.count));
  launch<delta_decode_kernel>(where, true, grid, kThreads, 0, a);
}

}  // namespace lily::cuda
