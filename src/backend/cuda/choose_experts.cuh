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
struct LaneBest {
  std::uint32_t key;
  int at;
};
/// The largest of kCount keys, the first among equals. By halves: what a round costs is its latency.
template <int kFrom, int kCount, int kKeys>
__device__ __forceinline__ LaneBest best_of(const std::uint32_t (&keys)[kKeys]) {
  if constexpr (kCount == 1) {
    return {keys[kFrom], kFrom};
  } else {
    const LaneBest left = best_of<kFrom, kCount / 2>(keys);
    const LaneBest right = best_of<kFrom + kCount / 2, kCount / 2>(keys);
    return right.key > left.key ? right : left;
  }
}

/// By a whole warp; lane n < k gets the n-th choice. kPerLane: logits, logit(expert), that a lane holds.
template <int kPerLane, class Logit>
__device__ Chosen choose_experts(Logit&& logit, int experts, int k) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  std::uint32_t keys[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = i * 32 + lane;
    keys[i] = expert < experts ? sort_key(logit(expert)) : 0;
  }
  std::uint32_t mine = 0;
  unsigned expert = 0;
  for (int n = 0; n < k; ++n) {
    const LaneBest best = best_of<0, kPerLane>(keys);
    const auto index = static_cast<unsigned>(best.at * 32 + lane);
    const std::uint32_t top = __reduce_max_sync(0xffffffffU, best.key);
    const unsigned winner = __reduce_min_sync(0xffffffffU, best.key == top ? index : kMaxExperts);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (static_cast<unsigned>(i * 32 + lane) == winner) keys[i] = 0;
    }
    if (lane == n) {
      mine = top;
      expert = winner;
    }
  }
  const float largest = __shfl_sync(0xffffffffU, key_value(mine), 0);
  const float weight = lane < k ? __expf(key_value(mine) - largest) : 0.0F;
  // Logits that are not numbers have large keys; where none is left, any expert will do.
  return {static_cast<int>(expert) < experts ? static_cast<int>(expert) : 0, weight / warp_sum(weight)};
}
template <class Logit>
__device__ __forceinline__ Chosen choose_experts(Logit&& logit, int experts, int k) {
  static_assert(kMaxExperts == 512);
  return experts <= 256 ? choose_experts<8>(logit, experts, k) : choose_experts<16>(logit, experts, k);
}

}  // namespace lily::cuda
