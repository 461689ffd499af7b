// Row by row work of both phases: embedding, norms, greedy choice.
#include "backend/cuda/digits.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/ptx.cuh"

namespace lily::cuda {
namespace {

// A block a row: the token's embedding, for decoding also times the first gain, and the angles of its
// position.
__global__ void embed_kernel(EmbedArgs a) {
  wait_for_previous();
  let_next_start();
  const int row = static_cast<int>(blockIdx.x);
  const int token = a.rows.token[row];
  const std::int64_t row_bytes = static_cast<std::int64_t>(a.hidden) * a.bits / 8;
  const std::uint8_t* codes = a.codes + token * row_bytes;
  const std::int64_t groups = static_cast<std::int64_t>(token) * (a.hidden / a.group_size);
  for (int i = static_cast<int>(threadIdx.x); i < a.hidden; i += static_cast<int>(blockDim.x)) {
    const unsigned code = code_at(codes, a.bits, i);
    const float s = bf16_low(a.scales[groups + i / a.group_size]);
    const float b = bf16_low(a.biases[groups + i / a.group_size]);
    a.residual[static_cast<std::int64_t>(row) * a.hidden + i] = __fmaf_rn(s, static_cast<float>(code), b);
  }
  if (threadIdx.x < kRotary / 2) {
    // In double: at position 262,143 the angle is 262,143 rad.
    const double angle = a.rows.position[row] * a.frequencies[threadIdx.x];
    a.rows.rope[row * kRotary + threadIdx.x] = static_cast<float>(cos(angle));
    a.rows.rope[row * kRotary + kRotary / 2 + threadIdx.x] = static_cast<float>(sin(angle));
  }
  if (a.gain == nullptr) return;
  __syncthreads();
  const int group_count = a.hidden / kGroup;
  const float* x = a.residual + static_cast<std::int64_t>(row) * a.hidden;
  put_normed_rows<1, Parts::kUnits>(
      {a.normed + row * digits_bytes(group_count), group_count}, 1, [x](int) { return x; }, a.gain);
}

constexpr int kNormThreads = 256;

__global__ void __launch_bounds__(kNormThreads) norm_kernel(NormArgs a) {
  __shared__ float scratch[kNormThreads / 32];
  const std::int64_t row = blockIdx.x;
  const float4* x = reinterpret_cast<const float4*>(a.residual + row * a.hidden);
  const float4* gain = reinterpret_cast<const float4*>(a.gain);
  float square = 0;
  for (int i = static_cast<int>(threadIdx.x); i < a.hidden / 4; i += kNormThreads) {
    const float4 v = x[i];
    square = __fmaf_rn(v.w, v.w, __fmaf_rn(v.z, v.z, __fmaf_rn(v.y, v.y, __fmaf_rn(v.x, v.x, square))));
  }
  const float inverse = rsqrtf(block_sum(square, scratch) / static_cast<float>(a.hidden) + a.eps);
  for (int i = static_cast<int>(threadIdx.x); i < a.hidden / 4; i += kNormThreads) {
    const float4 v = x[i];
    const float4 w = gain[i];
    *reinterpret_cast<uint2*>(a.out + row * a.hidden + i * 4) =
        make_uint2(pack_bf16(v.x * inverse * w.x, v.y * inverse * w.y),
                   pack_bf16(v.z * inverse * w.z, v.w * inverse * w.w));
  }
}

constexpr int kArgmaxThreads = 256;

struct Best {
  float value;
  int index;
};
__device__ Best better(Best a, Best b) {
  return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}
// The best of a block, in thread 0.
__device__ Best block_best(Best best, Best* scratch) {
  for (int d = 16; d > 0; d >>= 1) {
    const float value = __shfl_xor_sync(0xffffffffU, best.value, d);
    const int index = __shfl_xor_sync(0xffffffffU, best.index, d);
    best = better(best, {value, index});
  }
  if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = best;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (unsigned w = 1; w < blockDim.x / 32; ++w) best = better(best, scratch[w]);
  }
  return best;
}

// grid (kArgmaxBlocks, T)
__global__ void __launch_bounds__(kArgmaxThreads) argmax_parts(ArgmaxArgs a) {
  __shared__ Best scratch[kArgmaxThreads / 32];
  wait_for_previous();
  let_next_start();
  const float* x = a.logits + blockIdx.y * a.stride;
  Best best{-INFINITY, a.limit};
  for (int i = static_cast<int>(blockIdx.x * kArgmaxThreads + threadIdx.x); i < a.limit;
       i += kArgmaxBlocks * kArgmaxThreads)
    best = better(best, {__ldcg(x + i), i});
  best = block_best(best, scratch);
  if (threadIdx.x == 0) {
    a.partial_value[blockIdx.y * kArgmaxBlocks + blockIdx.x] = best.value;
    a.partial_index[blockIdx.y * kArgmaxBlocks + blockIdx.x] = best.index;
  }
}
__global__ void __launch_bounds__(kArgmaxBlocks) argmax_join(ArgmaxArgs a) {
  __shared__ Best scratch[kArgmaxBlocks / 32];
  wait_for_previous();
  let_next_start();
  const unsigned at = blockIdx.x * kArgmaxBlocks + threadIdx.x;
  const Best best = block_best({__ldcg(a.partial_value + at), __ldcg(a.partial_index + at)}, scratch);
  if (threadIdx.x == 0) a.out[blockIdx.x] = best.index < a.limit ? best.index : -1;
}

}  // namespace

void embed(const Launch& where, const EmbedArgs& a) {
  launch<embed_kernel>(where, true, dim3(static_cast<unsigned>(a.rows.count)), 256, 0, a);
}
void norm_rows(const Launch& where, const NormArgs& a) {
  launch<norm_kernel>(where, false, dim3(static_cast<unsigned>(a.rows)), kNormThreads, 0, a);
}
void argmax(const Launch& where, const ArgmaxArgs& a) {
  launch<argmax_parts>(where, true, dim3(kArgmaxBlocks, static_cast<unsigned>(a.rows)), kArgmaxThreads, 0, a);
  launch<argmax_join>(where, true, dim3(static_cast<unsigned>(a.rows)), kArgmaxBlocks, 0, a);
}

}  // namespace lily::cuda
