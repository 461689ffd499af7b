// The experts of a row: its K largest logits, the lowest index first among equals, weighted by the softmax
// over them.
#pragma once

#include "functions.h"

/// Larger floats have larger keys; 0 is below all.
inline uint sort_key(float x) {
  const uint bits = as_type<uint>(x);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
inline float key_value(uint key) {
  return as_type<float>((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

struct Chosen {
  int expert;
  float weight;
};
/// By a whole SIMD-group; lane n < k gets the n-th choice.
inline Chosen choose_experts(device const float* logits, int experts, int k, uint lane) {
  constexpr int kPerLane = kMaxExperts / kSimd;
  uint keys[kPerLane];
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = i * kSimd + int(lane);
    keys[i] = expert < experts ? sort_key(logits[expert]) : 0u;
  }
  Chosen mine;
  mine.expert = 0;
  mine.weight = 0.0f;
  float largest = 0.0f;
  float total = 0.0f;
  for (int n = 0; n < k; ++n) {
    uint best = 0;
    uint index = uint(kMaxExperts);
    for (int i = 0; i < kPerLane; ++i) {
      if (keys[i] > best) {
        best = keys[i];
        index = uint(i * kSimd) + lane;
      }
    }
    const uint top = simd_max(best);
    const uint winner = simd_min(best == top ? index : uint(kMaxExperts));
    for (int i = 0; i < kPerLane; ++i) {
      if (uint(i * kSimd) + lane == winner) keys[i] = 0;
    }
    const float value = key_value(top);
    if (n == 0) largest = value;
    const float weight = exp(value - largest);
    total += weight;
    if (int(lane) == n) {
      // Logits that are not numbers have large keys; where none is left, any expert will do.
      mine.expert = int(winner) < experts ? int(winner) : 0;
      mine.weight = weight;
    }
  }
  mine.weight /= total;
  return mine;
}
