// What both forms of the gated delta rule share.
#pragma once

#include "functions.h"

struct DeltaGates {
  float log_decay;
  float beta;
};
/// log decay = -exp(A_log) softplus(a + dt_bias), beta = sigmoid(b).
inline DeltaGates delta_gates(float a, float b, float A_log, float dt_bias) {
  const float x = a + dt_bias;
  const float softplus = x > 20.0f ? x : log(1.0f + exp(x));
  DeltaGates gates;
  gates.log_decay = -exp(A_log) * softplus;
  gates.beta = sigmoid(b);
  return gates;
}

/// SiLU of the causal convolution; x3 is the oldest row.
inline float convolve(float4 taps, float x3, float x2, float x1, float x0) {
  return silu(fma(taps.w, x0, fma(taps.z, x1, fma(taps.y, x2, taps.x * x3))));
}

inline int delta_channels(constant DeltaArgs& a) {
  return (2 * a.key_heads + a.value_heads) * kLinearDim;
}
/// The rows before the convolution lie behind a layer's state.
inline ulong ring_offset(constant DeltaArgs& a) {
  return ulong(a.value_heads) * ulong(kLinearDim * kLinearDim);
}
