// What the two forms of the grouped product share: dequantising an A fragment, and storing the result.
#pragma once

#include "backend/cuda/kernels.h"
#include "backend/cuda/ptx.cuh"

namespace lily::cuda {

/// Scales and biases of a lane's rows g and g + 8, each twice in a register.
struct AffinePair {
  std::uint32_t s_low, b_low, s_high, b_high;
};
__device__ __forceinline__ AffinePair twice(uint2 v) {
  return {__byte_perm(v.x, 0, 0x1010), __byte_perm(v.x, 0, 0x3232), __byte_perm(v.y, 0, 0x1010),
          __byte_perm(v.y, 0, 0x3232)};
}
/// A word's eight codes to the A registers of one k16 step, times 2^-8 (packed.h).
__device__ __forceinline__ void dequantize(std::uint32_t (&a)[4], std::uint32_t word, const AffinePair& f) {
  const std::uint32_t next = word >> 8;
  a[0] = fma_bf16x2(word & 0x000f000fU, f.s_low, f.b_low);
  a[1] = fma_bf16x2(word & 0x00f000f0U, f.s_high, f.b_high);
  a[2] = fma_bf16x2(next & 0x000f000fU, f.s_low, f.b_low);
  a[3] = fma_bf16x2(next & 0x00f000f0U, f.s_high, f.b_high);
}

/// One token's values of a lane: banks 0 and 1, rows g and g + 8, times 2^-8.
struct LaneValues {
  float bank0_low, bank0_high, bank1_low, bank1_high;
};
/// Stores them at list row `row`; `pair` names the 32 channels (16 columns), lane g its four (two) of them.
template <GemmOut kOut>
__device__ __forceinline__ void store_values(const GemmArgs& a, int pair, int g, std::int64_t row,
                                             float weight, LaneValues v) {
  if constexpr (kOut == GemmOut::kSwiglu) {
    const int column = pair * 16 + g * 2;
    if (column >= a.out_limit) return;
    const float low = silu(v.bank0_low * kProductScale) * (v.bank1_low * kProductScale);
    const float high = silu(v.bank0_high * kProductScale) * (v.bank1_high * kProductScale);
    *reinterpret_cast<std::uint32_t*>(static_cast<__nv_bfloat16*>(a.out) + row * a.out_stride + column) =
        pack_bf16(low, high);
  } else {
    const int channel = pair * 32 + g * 4;
    if (channel >= a.out_limit) return;
    const float factor = kOut == GemmOut::kScaled ? kProductScale * weight : kProductScale;
    if constexpr (kOut == GemmOut::kAdd) {
      float4* x = reinterpret_cast<float4*>(static_cast<float*>(a.out) + row * a.out_stride + channel);
      float4 sum = *x;
      sum.x = __fmaf_rn(v.bank0_low, factor, sum.x);
      sum.y = __fmaf_rn(v.bank0_high, factor, sum.y);
      sum.z = __fmaf_rn(v.bank1_low, factor, sum.z);
      sum.w = __fmaf_rn(v.bank1_high, factor, sum.w);
      *x = sum;
    } else {
      *reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(a.out) + row * a.out_stride + channel) =
          make_uint2(pack_bf16(v.bank0_low * factor, v.bank0_high * factor),
                     pack_bf16(v.bank1_low * factor, v.bank1_high * factor));
    }
  }
}

}  // namespace lily::cuda
