// Small functions of several kernels.
#pragma once

#include <metal_stdlib>
using namespace metal;

#include "kernels.h"

/// Whether scales and biases are those of groups of 32 inputs, two for kGroup.
constant bool FC_SMALL_GROUPS [[function_constant(0)]];
/// Scales, and biases, of a row of `in` inputs.
inline int scales_of(int in) {
  return in / kGroup * (FC_SMALL_GROUPS ? 2 : 1);
}

inline float sigmoid(float x) {
  return 1.0f / (1.0f + exp(-x));
}
inline float silu(float x) {
  return x * sigmoid(x);
}

/// The sum over the aligned group of `lanes` lanes that this one is in: 8, 16 or 32.
inline float sum_lanes(float x, int lanes) {
  if (lanes == kSimd) return simd_sum(x);
  for (int step = lanes / 2; step > 0; step /= 2) x += simd_shuffle_xor(x, ushort(step));
  return x;
}

/// Activations of products are half where a norm bounds them; beyond its range they are cut off.
inline half to_half(float x) {
  return half(clamp(x, -65504.0f, 65504.0f));
}
