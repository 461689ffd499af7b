// Prefill around the products: norms, the sorting of rows by expert on the device, and the sum of what the
// experts return.
#include "choose.h"

/// out = half(norm(x) * gain); a threadgroup a row.
[[kernel]] [[max_total_threads_per_threadgroup(256)]] void norm_rows(
    device const float* x [[buffer(0)]], device const float* gain [[buffer(1)]], device half* out [[buffer(2)]],
    constant NormArgs& a [[buffer(3)]], uint row [[threadgroup_position_in_grid]],
    uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float parts[kRowThreads / kSimd];
  device const float* from = x + ulong(row) * ulong(a.hidden);
  float square = 0.0f;
  for (int i = int(tid); i < a.hidden; i += kRowThreads) square = fma(from[i], from[i], square);
  square = simd_sum(square);
  if (lane == 0) parts[simdgroup] = square;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  square = 0.0f;
  for (int i = 0; i < kRowThreads / kSimd; ++i) square += parts[i];
  const float inverse = rsqrt(square / float(a.hidden) + a.eps);
  for (int i = int(tid); i < a.hidden; i += kRowThreads)
    out[ulong(row) * ulong(a.hidden) + ulong(i)] = to_half(from[i] * inverse * gain[i]);
}

[[kernel]] void zero_counts(device int* counts [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  if (i < uint(kMaxExperts)) counts[i] = 0;
}

/// A SIMD-group a row: its choice, a place in each chosen expert's list, and the shared expert's share.
[[kernel]] void choose_rows(device const float* logits [[buffer(0)]], device int* chosen [[buffer(1)]],
                            device int* place [[buffer(2)]], device float* weights [[buffer(3)]],
                            device float* share [[buffer(4)]], device atomic_int* counts [[buffer(5)]],
                            constant RouteArgs& a [[buffer(6)]], uint tg [[threadgroup_position_in_grid]],
                            uint simdgroup [[simdgroup_index_in_threadgroup]],
                            uint lane [[thread_index_in_simdgroup]]) {
  const int row = int(tg) * kRouteSimdgroups + int(simdgroup);
  if (row >= a.rows) return;
  device const float* mine = logits + ulong(row) * ulong(a.logits_stride);
  const Chosen c = choose_experts(mine, a.experts, a.experts_per_token, lane);
  if (lane == 0) share[row] = sigmoid(mine[a.experts]);
  if (int(lane) >= a.experts_per_token) return;
  const int at = row * a.experts_per_token + int(lane);
  chosen[at] = c.expert;
  weights[at] = c.weight;
  place[at] = atomic_fetch_add_explicit(counts + c.expert, 1, memory_order_relaxed);
}

/// First list row of each expert, and the tiles of all lists; one threadgroup, a thread an expert. A tile that
/// is not needed has no rows.
[[kernel]] [[max_total_threads_per_threadgroup(512)]] void list_tiles(
    device const int* counts [[buffer(0)]], device int* first [[buffer(1)]], device Tile* tiles [[buffer(2)]],
    constant RouteArgs& a [[buffer(3)]], uint tid [[thread_index_in_threadgroup]]) {
  threadgroup int rows_before[kMaxExperts];
  threadgroup int tiles_before[kMaxExperts];
  const int e = int(tid);
  const int rows = e < a.experts ? counts[e] : 0;
  const int parts = (rows + a.tile_rows - 1) / a.tile_rows;
  rows_before[e] = rows;
  tiles_before[e] = parts;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int d = 1; d < kMaxExperts; d *= 2) {
    const int more_rows = e >= d ? rows_before[e - d] : 0;
    const int more_tiles = e >= d ? tiles_before[e - d] : 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    rows_before[e] += more_rows;
    tiles_before[e] += more_tiles;
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  const int start = rows_before[e] - rows;
  if (e < a.experts) first[e] = start;
  for (int i = 0; i < parts; ++i) {
    device Tile& tile = tiles[tiles_before[e] - parts + i];
    tile.expert = e;
    tile.start = start + i * a.tile_rows;
    tile.rows = min(a.tile_rows, rows - i * a.tile_rows);
  }
  for (int i = tiles_before[kMaxExperts - 1] + e; i < a.most_tiles; i += kMaxExperts) tiles[i].rows = 0;
}

/// Every choice to its list row. A row's place within its expert is in the order of the atomic additions: the
/// products do not depend on it.
[[kernel]] void place_rows(device const int* chosen [[buffer(0)]], device const float* weights [[buffer(1)]],
                           device const int* first [[buffer(2)]], device int* place [[buffer(3)]],
                           device int* row_index [[buffer(4)]], device float* row_weight [[buffer(5)]],
                           constant RouteArgs& a [[buffer(6)]], uint i [[thread_position_in_grid]]) {
  if (int(i) >= a.rows * a.experts_per_token) return;
  const int to = first[chosen[i]] + place[i];
  place[i] = to;
  row_index[to] = int(i) / a.experts_per_token;
  row_weight[to] = weights[i];
}

/// residual += what the row's experts returned, already weighted, in the order of its choices. Grid (H, T).
[[kernel]] void combine_rows(device const bfloat* expert_out [[buffer(0)]], device const int* place [[buffer(1)]],
                             device float* residual [[buffer(2)]], constant CombineArgs& a [[buffer(3)]],
                             uint2 at [[thread_position_in_grid]]) {
  const int i = int(at.x);
  const int row = int(at.y);
  if (i >= a.hidden) return;
  float sum = 0.0f;
  for (int k = 0; k < a.experts_per_token; ++k)
    sum += float(expert_out[ulong(place[row * a.experts_per_token + k]) * ulong(a.hidden) + ulong(i)]);
  residual[ulong(row) * ulong(a.hidden) + ulong(i)] += sum;
}
