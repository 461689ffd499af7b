// The logits that may matter to a sampler, so that the host need not walk the vocabulary: those nearest the
// largest, found by a histogram of how far below it they lie. Grids are (kCandidateGroups, rows).
#include "functions.h"

/// Which bin a logit falls into; kCandidateBins: none of them, and so does every logit of a row in which one is
/// no number.
inline int bin_of(float x, float largest) {
  const float bin = (largest - x) * kBinsALogit;
  return largest < kUnusable && bin < float(kCandidateBins) ? int(bin) : kCandidateBins;
}

/// Of the groups' shares.
inline float row_largest(device const float* largest, uint row, uint lane) {
  static_assert(kCandidateGroups == kSimd, "a share a lane");
  return simd_max(largest[row * uint(kCandidateGroups) + lane]);
}

/// The largest logit of each group's share, kUnusable if one is no number. Clears what the next kernels count in.
[[kernel]] void find_largest(device const float* logits [[buffer(0)]], device float* largest [[buffer(1)]],
                             device int* bins [[buffer(2)]], device int* counts [[buffer(3)]],
                             constant CandidateArgs& a [[buffer(4)]], uint2 tg [[threadgroup_position_in_grid]],
                             uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                             uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float parts[kCandidateThreads / kSimd];
  const int first = int(tg.x) * kCandidateThreads + int(tid);
  constexpr int kStep = kCandidateGroups * kCandidateThreads;
  device const float* row = logits + ulong(tg.y) * ulong(a.stride);
  float most = kNothing;
  for (int i = first; i < a.limit; i += kStep) {
    const float x = row[i];
    most = x == x ? max(most, x) : kUnusable;
  }
  most = simd_max(most);
  if (lane == 0) parts[simdgroup] = most;
  if (first < kCandidateBins) bins[int(tg.y) * kCandidateBins + first] = 0;
  if (first == 0) counts[tg.y] = 0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (tid > 0) return;
  for (int i = 1; i < kCandidateThreads / kSimd; ++i) most = max(most, parts[i]);
  largest[tg.y * uint(kCandidateGroups) + tg.x] = most;
}

/// Logits of every bin: in threadgroup memory first, since most fall into few bins.
[[kernel]] void count_bins(device const float* logits [[buffer(0)]], device const float* largest [[buffer(1)]],
                           device atomic_int* bins [[buffer(2)]], constant CandidateArgs& a [[buffer(3)]],
                           uint2 tg [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                           uint lane [[thread_index_in_simdgroup]]) {
  threadgroup int mine[kCandidateBins];
  for (int i = int(tid); i < kCandidateBins; i += kCandidateThreads) mine[i] = 0;
  const float most = row_largest(largest, tg.y, lane);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  device const float* row = logits + ulong(tg.y) * ulong(a.stride);
  for (int i = int(tg.x) * kCandidateThreads + int(tid); i < a.limit; i += kCandidateGroups * kCandidateThreads) {
    const int bin = bin_of(row[i], most);
    if (bin < kCandidateBins)
      atomic_fetch_add_explicit((threadgroup atomic_int*)(mine + bin), 1, memory_order_relaxed);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int i = int(tid); i < kCandidateBins; i += kCandidateThreads) {
    if (mine[i] > 0) atomic_fetch_add_explicit(bins + int(tg.y) * kCandidateBins + i, mine[i], memory_order_relaxed);
  }
}

/// The first bin that is not listed: behind the one that completes kWantedCandidates, unless that would be too
/// many. By a whole SIMD-group.
inline int first_left_out(device const int* bins, uint lane) {
  constexpr int kPerLane = kCandidateBins / kSimd;
  const int first = int(lane) * kPerLane;
  int total = 0;
  for (int i = first; i < first + kPerLane; ++i) total += bins[i];
  int count = simd_prefix_exclusive_sum(total);
  int end = kCandidateBins;
  for (int i = first; i < first + kPerLane; ++i) {
    const int before = count;
    count += bins[i];
    if (before < kWantedCandidates && count >= kWantedCandidates) end = count <= kMostCandidates ? i + 1 : i;
  }
  return simd_min(end);
}

/// The list, and the largest logit that every SIMD-group leaves out of it.
[[kernel]] void collect_candidates(
    device const float* logits [[buffer(0)]], device const float* largest [[buffer(1)]],
    device const int* bins [[buffer(2)]], device atomic_int* counts [[buffer(3)]],
    device ListedLogit* list [[buffer(4)]], device float* left_out [[buffer(5)]],
    constant CandidateArgs& a [[buffer(6)]], uint2 tg [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const float most = row_largest(largest, tg.y, lane);
  const int end = first_left_out(bins + int(tg.y) * kCandidateBins, lane);
  device const float* row = logits + ulong(tg.y) * ulong(a.stride);
  device ListedLogit* mine = list + ulong(tg.y) * ulong(kMostCandidates);
  float above = kNothing;
  for (int i = int(tg.x) * kCandidateThreads + int(tid); i < a.limit; i += kCandidateGroups * kCandidateThreads) {
    const float x = row[i];
    if (bin_of(x, most) >= end) {
      if (x > above) above = x;
      continue;
    }
    const int at = atomic_fetch_add_explicit(counts + tg.y, 1, memory_order_relaxed);
    mine[at].id = i;
    mine[at].logit = x;
  }
  above = simd_max(above);
  const uint part = tg.x * uint(kCandidateThreads / kSimd) + simdgroup;
  if (lane == 0) left_out[tg.y * uint(kCandidateParts) + part] = above;
}
