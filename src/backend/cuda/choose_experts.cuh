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

/// The experts of a row in shared memory, best first.
struct Choice {
  int expert[kMaxExpertsPerToken];
  float logit[kMaxExpertsPerToken];
};

/// What a block chooses from: keys of all experts, and of each warp's 32 the best in order.
struct ChoiceScratch {
  static constexpr int kWarps = kMaxExperts / 32;
  static constexpr int kBest = kMaxExpertsPerToken;
  uint4 keys[kMaxExperts / 4];
  uint4 best[kWarps * kBest / 4];
  int best_expert[kWarps * kBest];

  __device__ std::uint32_t& best_key(int i) { return reinterpret_cast<std::uint32_t*>(best)[i]; }
};

/// By the warp of 32 experts: its best to `s`.
__device__ __forceinline__ void rank_in_warp(ChoiceScratch& s, std::uint32_t mine, int experts) {
  const int expert = static_cast<int>(threadIdx.x);
  const int lane = expert & 31;
  const int warp = expert >> 5;
  reinterpret_cast<std::uint32_t*>(s.keys)[expert] = mine;
  __syncwarp();
  int rank = 0;
  const auto count = [&](std::uint32_t other, int at) {
    rank += static_cast<int>(other > mine || (other == mine && at < lane));
  };
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint4 others = s.keys[warp * 8 + i];
    count(others.x, 4 * i);
    count(others.y, 4 * i + 1);
    count(others.z, 4 * i + 2);
    count(others.w, 4 * i + 3);
  }
  if (rank >= ChoiceScratch::kBest) return;
  s.best_key(warp * ChoiceScratch::kBest + rank) = mine;
  s.best_expert[warp * ChoiceScratch::kBest + rank] = expert < experts ? expert : 0;
}

/// By eight lanes, each against every eighth warp's best: how many are before the `place`-th of warp `home`.
__device__ __forceinline__ int rank_among_best(ChoiceScratch& s, int home, int place, int warps, int k) {
  constexpr int kBest = ChoiceScratch::kBest;
  const std::uint32_t mine = s.best_key(home * kBest + place);
  int rank = 0;
  for (int other = static_cast<int>(threadIdx.x & 7); other < warps; other += 8) {
    if (other == home) {
      rank += place;
      continue;
    }
    const auto count = [&](std::uint32_t key) {
      rank += static_cast<int>(key > mine || (key == mine && other < home));
    };
    for (int i = 0; i < (k + 3) / 4; ++i) {
      const uint4 others = s.best[other * (kBest / 4) + i];
      count(others.x);
      count(others.y);
      count(others.z);
      count(others.w);
    }
  }
  for (int step = 1; step < 8; step *= 2) rank += __shfl_xor_sync(0xffffffffU, rank, step);
  return rank;
}

/// The same choice by a block of kMaxExperts threads, all of which call it and may then read `choice`: not
/// expert after expert, but by counting the better ones, among a warp's 32 and then among each warp's best.
template <class Logit>
__device__ void choose_by_block(Logit&& logit, int experts, int k, Choice& choice) {
  constexpr int kBest = ChoiceScratch::kBest;
  __shared__ ChoiceScratch s;
  const int thread = static_cast<int>(threadIdx.x);
  const int warps = (experts + 31) / 32;
  if (thread / 32 < warps) rank_in_warp(s, thread < experts ? sort_key(logit(thread)) : 0, experts);
  __syncthreads();
  for (int first = 0; first < warps * k; first += kMaxExperts / 8) {
    const int candidate = first + thread / 8;
    const bool valid = candidate < warps * k;
    const int home = valid ? candidate / k : 0;
    const int place = valid ? candidate - home * k : 0;
    const int rank = rank_among_best(s, home, place, warps, k);
    if (valid && rank < k && (thread & 7) == 0) {
      choice.expert[rank] = s.best_expert[home * kBest + place];
      choice.logit[rank] = key_value(s.best_key(home * kBest + place));
    }
  }
  __syncthreads();
}

}  // namespace lily::cuda
