// Convolution and gated norm over the rows of prefill segments; the delta rule between them is in
// prefill_delta.cu.
#include "backend/cuda/delta_rule.cuh"
#include "backend/cuda/launch.cuh"

namespace lily::cuda {
namespace {

constexpr int kRowThreads = 256;
constexpr int kRowWarps = kRowThreads / 32;

__device__ __forceinline__ float4 widen(uint2 v) {
  return make_float4(bf16_low(v.x), bf16_high(v.x), bf16_low(v.y), bf16_high(v.y));
}
__device__ __forceinline__ float square_sum(float4 x) {
  return __fmaf_rn(x.w, x.w, __fmaf_rn(x.z, x.z, __fmaf_rn(x.y, x.y, __fmul_rn(x.x, x.x))));
}
__device__ __forceinline__ float4 scale4(float4 x, float f) {
  return make_float4(x.x * f, x.y * f, x.z * f, x.w * f);
}

struct ConvRow {
  const DeltaPrefillArgs& a;
  std::int64_t row;
  int local;  // within its segment
  int position;
  const float* ring;
  int channels;

  // Four channels of the row `back` rows ago: of this step, or of the slot's ring.
  __device__ float4 past(int back, int channel) const {
    if (local >= back)
      return widen(*reinterpret_cast<const uint2*>(a.projected + (row - back) * a.stride + channel));
    return *reinterpret_cast<const float4*>(
        ring + static_cast<std::int64_t>((position - back) & 3) * channels + channel);
  }
  __device__ float4 convolved(int channel) const {
    const float4 x3 = past(3, channel);
    const float4 x2 = past(2, channel);
    const float4 x1 = past(1, channel);
    const float4 x0 = past(0, channel);
    const float4* taps = reinterpret_cast<const float4*>(a.taps) + channel;
    return make_float4(convolve(taps[0], x3.x, x2.x, x1.x, x0.x), convolve(taps[1], x3.y, x2.y, x1.y, x0.y),
                       convolve(taps[2], x3.z, x2.z, x1.z, x0.z), convolve(taps[3], x3.w, x2.w, x1.w, x0.w));
  }
};

// A block a row; a warp takes a key head (q, k and the gates of its value heads) or a value head at a time.
__global__ void __launch_bounds__(kRowThreads) convolve_rows(DeltaPrefillArgs a) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const std::int64_t row = blockIdx.x;
  const SegmentRows segment = a.segments[a.segment_of[row]];
  const int channels = (2 * a.key_heads + a.value_heads) * kLinearDim;
  const int key_dim = a.key_heads * kLinearDim;
  const int local = static_cast<int>(row) - segment.first_row;
  const float* ring = a.state.layer + segment.slot * a.state.stride +
                      static_cast<std::int64_t>(a.value_heads) * kLinearDim * kLinearDim;
  const ConvRow conv{a, row, local, segment.position + local, ring, channels};
  for (int head = static_cast<int>(threadIdx.x >> 5); head < a.key_heads + a.value_heads; head += kRowWarps) {
    if (head >= a.key_heads) {
      const int at = (head - a.key_heads) * kLinearDim + lane * 4;
      *reinterpret_cast<float4*>(a.value + row * a.value_heads * kLinearDim + at) =
          conv.convolved(2 * key_dim + at);
      continue;
    }
    const int at = head * kLinearDim + lane * 4;
    float4 q = conv.convolved(at);
    float4 k = conv.convolved(key_dim + at);
    q = scale4(q, rsqrtf(warp_sum(square_sum(q)) + kL2Epsilon) * kQueryScale);
    k = scale4(k, rsqrtf(warp_sum(square_sum(k)) + kL2Epsilon));
    *reinterpret_cast<float4*>(a.query + row * key_dim + at) = q;
    *reinterpret_cast<float4*>(a.key + row * key_dim + at) = k;
    const int per_key = a.value_heads / a.key_heads;
    for (int i = lane; i < per_key; i += 32) {
      const int value_head = head * per_key + i;
      const __nv_bfloat16* projected = a.projected + row * a.stride;
      const DeltaGates gates = delta_gates(__bfloat162float(projected[a.a_offset + value_head]),
                                           __bfloat162float(projected[a.b_offset + value_head]),
                                           a.A_log[value_head], a.dt_bias[value_head]);
      a.gates[row * a.value_heads + value_head] = make_float2(gates.log_decay, gates.beta);
    }
  }
}

// The last rows before the convolution into the slots' rings. grid (segments, channels / 256)
__global__ void __launch_bounds__(kRowThreads) keep_rows(DeltaPrefillArgs a) {
  const SegmentRows segment = a.segments[blockIdx.x];
  const int channels = (2 * a.key_heads + a.value_heads) * kLinearDim;
  const int channel = static_cast<int>(blockIdx.y) * kRowThreads + static_cast<int>(threadIdx.x);
  if (channel >= channels) return;
  float* ring = a.state.layer + segment.slot * a.state.stride +
                static_cast<std::int64_t>(a.value_heads) * kLinearDim * kLinearDim;
  for (int i = segment.rows > kConvRing ? segment.rows - kConvRing : 0; i < segment.rows; ++i) {
    const std::int64_t row = segment.first_row + i;
    ring[static_cast<std::int64_t>((segment.position + i) & 3) * channels + channel] =
        __bfloat162float(a.projected[row * a.stride + channel]);
  }
}

// Norm first, then the gate; a warp a head.
__global__ void __launch_bounds__(kRowThreads) gated_norm(DeltaPrefillArgs a) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const std::int64_t row = blockIdx.x;
  for (int head = static_cast<int>(threadIdx.x >> 5); head < a.value_heads; head += kRowWarps) {
    const int at = head * kLinearDim + lane * 4;
    const float4 y = *reinterpret_cast<const float4*>(a.value + row * a.value_heads * kLinearDim + at);
    const float inverse = rsqrtf(warp_sum(square_sum(y)) / static_cast<float>(kLinearDim) + a.eps);
    const float4 w = *reinterpret_cast<const float4*>(a.gain + lane * 4);
    const float4 z = widen(*reinterpret_cast<const uint2*>(a.projected + row * a.stride + a.z_offset + at));
    *reinterpret_cast<uint2*>(a.out + row * a.value_heads * kLinearDim + at) =
        make_uint2(pack_bf16(y.x * inverse * w.x * silu(z.x), y.y * inverse * w.y * silu(z.y)),
                   pack_bf16(y.z * inverse * w.z * silu(z.z), y.w * inverse * w.w * silu(z.w)));
  }
}

}  // namespace

void delta_prefill(const Launch& where, const DeltaPrefillArgs& a) {
  const auto rows = static_cast<unsigned>(a.rows.count);
  const auto segments = static_cast<unsigned>(a.segment_count);
  const auto channels = static_cast<unsigned>((2 * a.key_heads + a.value_heads) * kLinearDim);
  launch<convolve_rows>(where, false, dim3(rows), kRowThreads, 0, a);
  launch<keep_rows>(where, false, dim3(segments, (channels + kRowThreads - 1) / kRowThreads), kRowThreads, 0,
                    a);
  a.sequential ? delta_sequential(where, a) : delta_chunks(where, a);
  launch<gated_norm>(where, false, dim3(rows), kRowThreads, 0, a);
}

}  // namespace lily::cuda
