// RMSNorm and partial rotation of one query or key head by one warp, lane i holding elements 8i to 8i + 7.
#pragma once

#include "backend/cuda/kernels.h"
#include "backend/cuda/ptx.cuh"

namespace lily::cuda {

/// Eight consecutive floats of a lane.
struct Eight {
  float v[8];
};
__device__ __forceinline__ Eight load_eight(const float* at) {
  const float4 p = __ldcg(reinterpret_cast<const float4*>(at));
  const float4 q = __ldcg(reinterpret_cast<const float4*>(at) + 1);
  return {{p.x, p.y, p.z, p.w, q.x, q.y, q.z, q.w}};
}

/// The position's angles that a lane rotates by; `rope` holds 32 cosines and 32 sines.
struct Rotation {
  Eight cosine{};
  Eight sine{};
  __device__ explicit Rotation(const float* rope) {
    const int lane = static_cast<int>(threadIdx.x & 31);
    if (lane >= 8) return;
    cosine = load_eight(rope + (lane & 3) * 8);
    sine = load_eight(rope + 32 + (lane & 3) * 8);
  }
};

/// x / rms(x) * gain; then elements j and j + 32 (j < 32) are rotated by the position's angle j.
__device__ __forceinline__ void norm_and_rotate(Eight& x, const Eight& gain, float eps,
                                                const Rotation& rotation) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  float square = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) square = __fmaf_rn(x.v[i], x.v[i], square);
  const float inverse = rsqrtf(warp_sum(square) / static_cast<float>(kHeadDim) + eps);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float normed = x.v[i] * inverse * gain.v[i];
    // Lane 0..3 pairs with lane 4..7.
    const float other = __shfl_xor_sync(0xffffffffU, normed, 4) * rotation.sine.v[i];
    x.v[i] = lane >= 8 ? normed : __fmaf_rn(normed, rotation.cosine.v[i], lane < 4 ? -other : other);
  }
}

__device__ __forceinline__ uint4 pack8(const Eight& x) {
  return make_uint4(pack_bf16(x.v[0], x.v[1]), pack_bf16(x.v[2], x.v[3]), pack_bf16(x.v[4], x.v[5]),
                    pack_bf16(x.v[6], x.v[7]));
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
