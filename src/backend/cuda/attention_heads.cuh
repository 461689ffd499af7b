// RMSNorm and partial rotation of one query or key head by one warp, lane i holding elements 8i to 8i + 7.
#pragma once

#include "backend/cuda/kernels.h"
#include "backend/cuda/ptx.cuh"

namespace lily::cuda {

/// x / rms(x) * gain; then elements j and j + 32 (j < 32) are rotated by the position's angle j.
__device__ __forceinline__ void norm_and_rotate(float (&x)[8], const float* gain, float eps,
                                                const float* rope) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  float square = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) square = __fmaf_rn(x[i], x[i], square);
  const float inverse = rsqrtf(warp_sum(square) / static_cast<float>(kHeadDim) + eps);
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = x[i] * inverse * gain[lane * 8 + i];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    // Lane 0..3 pairs with lane 4..7.
    const float other = __shfl_xor_sync(0xffffffffU, x[i], 4);
    if (lane < 8) {
      const int angle = (lane & 3) * 8 + i;
      const float c = rope[angle];
      const float s = rope[32 + angle];
      x[i] = lane < 4 ? __fmaf_rn(x[i], c, -(other * s)) : __fmaf_rn(x[i], c, other * s);
    }
  }
}

__device__ __forceinline__ uint4 pack8(const float (&x)[8]) {
  return make_uint4(pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(x[4], x[5]),
                    pack_bf16(x[6], x[7]));
}

/// Row `position` of K (or V) of one head in the cache, [D].
__device__ __forceinline__ __nv_bfloat16* cache_row(const PageView& cache, const int* pages, int position,
                                                    bool value, int kv_head) {
  const std::int64_t page = pages[position / kPageTokens];
  const int row = ((value ? cache.kv_heads : 0) + kv_head) * kPageTokens + position % kPageTokens;
  return cache.layer + page * cache.stride + static_cast<std::int64_t>(row) * kHeadDim;
}

inline constexpr float kScoreScale = 0.0625F * 1.4426950408889634F;  // 1 / sqrt(256), to base 2

}  // namespace lily::cuda
