// One token through convolution, gates and the gated delta rule. A threadgroup owns kDeltaColumns of a value
// head's 128 columns, so that 32 heads give 128 threadgroups; its part of the state is 16 floats a thread,
// read and written once. The gated norm follows in the out-projection, which needs the sums of squares.
#include "delta.h"

/// The channel before the convolution that thread `i` works on: q, k, then the threadgroup's v.
inline int input_channel(constant DeltaArgs& a, int i, int key_head, int value_head, int column) {
  const int key_dim = a.key_heads * kLinearDim;
  if (i < kLinearDim) return key_head * kLinearDim + i;
  if (i < 2 * kLinearDim) return key_dim + key_head * kLinearDim + i - kLinearDim;
  return 2 * key_dim + value_head * kLinearDim + column + i - 2 * kLinearDim;
}

/// Grid (kDeltaParts, Hv, T), kDeltaThreads threads.
[[kernel]] [[max_total_threads_per_threadgroup(288)]] void delta_decode(
    device const float* projected [[buffer(0)]], device const float4* taps [[buffer(1)]],
    device const float* A_log [[buffer(2)]], device const float* dt_bias [[buffer(3)]],
    device float* slots [[buffer(4)]], device const int* slot_of [[buffer(5)]],
    device const int* positions [[buffer(6)]], device float* out [[buffer(7)]],
    device float* squares [[buffer(8)]], constant DeltaArgs& a [[buffer(9)]],
    uint3 tg [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint lane_index [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  constexpr int kDepth = kLinearDim / kDeltaSimdgroups;  // rows of the state that a thread holds
  static_assert(kDeltaColumns == kSimd, "a column a lane");
  threadgroup float input[kDeltaThreads];
  threadgroup float products[3];  // |q|^2, |k|^2, q k
  threadgroup float k_sums[kDeltaSimdgroups * kDeltaColumns];
  threadgroup float q_sums[kDeltaSimdgroups * kDeltaColumns];
  const int tid = int(thread_index);
  const int lane = int(lane_index);
  const int part = int(simdgroup);
  const int row = int(tg.z);
  const int value_head = int(tg.y);
  const int column = int(tg.x) * kDeltaColumns;
  const int per_key = a.value_heads / a.key_heads;
  const int key_head = value_head / per_key;
  const int channels = delta_channels(a);
  const int position = positions[row];
  device float* layer = slots + ulong(slot_of[row]) * ulong(a.slot_stride) + ulong(a.layer_offset);
  device float* ring = layer + ring_offset(a);
  const bool holds_state = part < kDeltaSimdgroups;
  device float* state =
      layer + (ulong(value_head) * ulong(kLinearDim) + ulong(part * kDepth)) * ulong(kLinearDim) + ulong(column + lane);
  float s[kDepth];
  for (int i = 0; i < kDepth; ++i) s[i] = holds_state ? state[i * kLinearDim] : 0.0f;

  const int channel = input_channel(a, tid, key_head, value_head, column);
  device const float* x = projected + ulong(row) * ulong(a.stride);
  const float current = x[channel];
  input[tid] = convolve(taps[channel], ring[((position - 3) & 3) * channels + channel],
                        ring[((position - 2) & 3) * channels + channel],
                        ring[((position - 1) & 3) * channels + channel], current);
  // q and k channels are read by several threadgroups; the oldest of the four rows is nobody's input.
  if (tid >= 2 * kLinearDim || (column == 0 && value_head % per_key == 0))
    ring[(position & 3) * channels + channel] = current;
  threadgroup_barrier(mem_flags::mem_threadgroup);

  threadgroup const float* q = input;
  threadgroup const float* k = input + kLinearDim;
  if (part < 3) {
    threadgroup const float* left = part == 1 ? k : q;
    threadgroup const float* right = part == 0 ? q : k;
    float sum = 0.0f;
    for (int i = lane; i < kLinearDim; i += kSimd) sum = fma(left[i], right[i], sum);
    sum = simd_sum(sum);
    if (lane == 0) products[part] = sum;
  }
  if (holds_state) {
    float k_sum = 0.0f;
    float q_sum = 0.0f;
    for (int i = 0; i < kDepth; ++i) {
      k_sum = fma(k[part * kDepth + i], s[i], k_sum);
      q_sum = fma(q[part * kDepth + i], s[i], q_sum);
    }
    k_sums[part * kDeltaColumns + lane] = k_sum;
    q_sums[part * kDeltaColumns + lane] = q_sum;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (!holds_state) return;

  float k_state = 0.0f;
  float q_state = 0.0f;
  for (int i = 0; i < kDeltaSimdgroups; ++i) {
    k_state += k_sums[i * kDeltaColumns + lane];
    q_state += q_sums[i * kDeltaColumns + lane];
  }
  const DeltaGates gates = delta_gates(x[a.a_offset + value_head], x[a.b_offset + value_head], A_log[value_head],
                                       dt_bias[value_head]);
  const float decay = exp(gates.log_decay);
  const float k_scale = rsqrt(products[1] + kL2Epsilon);
  const float q_scale = rsqrt(products[0] + kL2Epsilon) * kQueryScale;
  const float v = input[2 * kLinearDim + lane];
  const float delta = gates.beta * fma(-decay * k_scale, k_state, v);
  if (part == 0) {
    const float y = fma(decay * q_scale, q_state, products[2] * q_scale * k_scale * delta);
    const ulong head = ulong(row) * ulong(a.value_heads) + ulong(value_head);
    out[head * ulong(kLinearDim) + ulong(column + lane)] = y;
    const float square = simd_sum(y * y);
    if (lane == 0) squares[head * ulong(kDeltaParts) + ulong(tg.x)] = square;
  }
  const float update = k_scale * delta;
  for (int i = 0; i < kDepth; ++i)
    state[i * kLinearDim] = fma(decay, s[i], k[part * kDepth + i] * update);
}
