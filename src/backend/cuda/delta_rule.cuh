// What both forms of the gated delta rule share.
#pragma once

#include "backend/cuda/kernels.h"
#include "backend/cuda/ptx.cuh"

namespace lily::cuda {

struct DeltaGates {
  float log_decay;
  float beta;
};
/// log decay = -exp(A_log) softplus(a + dt_bias), beta = sigmoid(b).
__device__ __forceinline__ DeltaGates delta_gates(float a, float b, float A_log, float dt_bias) {
  const float x = a + dt_bias;
  const float softplus = x > 20.0F ? x : log1pf(expf(x));
  return {-expf(A_log) * softplus, 1.0F / (1.0F + expf(-b))};
}

/// SiLU of the causal convolution, oldest row first.
__device__ __forceinline__ float convolve(const float4& taps, float x3, float x2, float x1, float x0) {
  const float sum =
      __fmaf_rn(taps.w, x0, __fmaf_rn(taps.z, x1, __fmaf_rn(taps.y, x2, __fmul_rn(taps.x, x3))));
  return silu(sum);
}

inline constexpr float kQueryScale = 0.08838834764831845F;  // 1 / sqrt(128)
inline constexpr float kL2Epsilon = 1e-6F;

}  // namespace lily::cuda
