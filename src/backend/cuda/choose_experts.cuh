// The experts of a row: its K largest logits, the lowest index first among equals, weighted by the softmax
// over them.
#pragma once

#include "backend/cuda/kernels.h"
#include "backend/cuda/ptx.cuh"

namespace lily::cuda {

/// Larger floats have larger keys.
__device__ __forceinline__ std::uint32_t sort_key(float x) {
  const std::uint32_t bits = __float_as_uint(x);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
__device__ __forceinline__ float key_value(std::uint32_t key) {
  return __uint_as_float((key & 0x80000000U) != 0 ? key & 0x7fffffffU : ~key);
}

struct Chosen {
  int expert = 0;
  float weight = 0;
};
/// By a whole warp; lane n < k gets the n-th choice. kPerLane: logits a lane holds.
template <int kPerLane>
__device__ Chosen choose_experts(const float* logits, int experts, int k) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  std::uint32_t keys[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = i * 32 + lane;
    keys[i] = expert < experts ? sort_key(__ldcg(logits + expert)) : 0;
  }
  Chosen mine;
  float largest = 0;
  float total = 0;
  for (int n = 0; n < k; ++n) {
    std::uint32_t best = 0;
    unsigned index = kMaxExperts;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (keys[i] > best) {
        best = keys[i];
        index = static_cast<unsigned>(i * 32 + lane);
      }
    }
    const std::uint32_t top = __reduce_max_sync(0xffffffffU, best);
    const unsigned winner = __reduce_min_sync(0xffffffffU, best == top ? index : kMaxExperts);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (static_cast<unsigned>(i * 32 + lane) == winner) keys[i] = 0;
    }
    const float value = key_value(top);
    if (n == 0) largest = value;
    const float weight = __expf(value - largest);
    total += weight;
    // Logits that are not numbers have large keys; where none is left, any expert will do.
    if (lane == n) mine = {static_cast<int>(winner) < experts ? static_cast<int>(winner) : 0, weight};
  }
  mine.weight /= total;
  return mine;
}
__device__ __forceinline__ Chosen choose_experts(const float* logits, int experts, int k) {
  static_assert(kMaxExperts == 512);
  return experts <= 256 ? choose_experts<8>(logits, experts, k) : choose_experts<16>(logits, experts, k);
}

}  // namespace lily::cuda
