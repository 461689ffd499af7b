// Around attention: norm, rotation and the cache's new rows before it, and the joining of ranges after it.
#include "attend.h"

/// Eight consecutive values of a head, normed and rotated in place. A lane holds values 8 lane .. 8 lane + 7.
inline void norm_and_rotate(thread float* x, device const float* gain, float eps, device const float* rope,
                            uint lane) {
  float square = 0.0f;
  for (int i = 0; i < 8; ++i) square = fma(x[i], x[i], square);
  const float inverse = rsqrt(simd_sum(square) / float(kHeadDim) + eps);
  for (int i = 0; i < 8; ++i) {
    x[i] *= inverse * gain[int(lane) * 8 + i];
    // Value j turns with value j + 32, which lies four lanes on.
    const float other = simd_shuffle_xor(x[i], ushort(4));
    const int j = (int(lane) & 3) * 8 + i;
    const float c = rope[j];
    const float s = rope[kRotary / 2 + j];
    if (lane < 8) x[i] = lane < 4 ? x[i] * c - other * s : x[i] * c + other * s;
  }
}

/// A SIMD-group a head of [query, K, V]: query heads to their place in the packed queries, [Nkv][T heads of a
/// KV head][256], K and V rows to the cache. Grid (heads / kHeadSimdgroups, T).
[[kernel]] void prepare_heads(device const float* projected [[buffer(0)]],
                              device const float* q_gain [[buffer(1)]], device const float* k_gain [[buffer(2)]],
                              device const float* rope [[buffer(3)]], device const int* positions [[buffer(4)]],
                              device const int* table_of [[buffer(5)]], device const int* tables [[buffer(6)]],
                              device const int* last_of [[buffer(7)]], device bfloat* pages [[buffer(8)]],
                              device bfloat* query [[buffer(9)]], constant AttentionArgs& a [[buffer(10)]],
                              uint2 tg [[threadgroup_position_in_grid]],
                              uint simdgroup [[simdgroup_index_in_threadgroup]],
                              uint lane [[thread_index_in_simdgroup]]) {
  const int head = int(tg.x) * kHeadSimdgroups + int(simdgroup);
  const int row = int(tg.y);
  if (head >= a.query_heads + 2 * a.kv_heads) return;
  const bool is_query = head < a.query_heads;
  const bool is_key = !is_query && head < a.query_heads + a.kv_heads;
  const int channel = is_query ? head * 2 * kHeadDim : (a.query_heads + head) * kHeadDim;
  device const float* from = projected + ulong(row) * ulong(a.stride) + ulong(channel + int(lane) * 8);
  float x[8];
  for (int i = 0; i < 8; ++i) x[i] = from[i];
  if (is_query || is_key)
    norm_and_rotate(x, is_query ? q_gain : k_gain, a.eps, rope + row * kRotary, lane);
  if (is_query) {
    const int group = a.query_heads / a.kv_heads;
    device bfloat* to =
        query + (ulong(head / group) * ulong(a.query_rows) + ulong(row * group + head % group)) * ulong(kHeadDim);
    for (int i = 0; i < 8; ++i) to[int(lane) * 8 + i] = bfloat(x[i]);
    return;
  }
  const int position = positions[row];
  const int kv_head = (head - a.query_heads) % a.kv_heads;
  const ulong page = ulong(tables[table_of[row] * a.page_stride_table + position / kPageTokens]);
  device bfloat* to = pages + page * ulong(a.page_stride) + cache_offset(a, kv_head) +
                      (is_key ? 0 : ulong(a.kv_heads) * ulong(kPageTokens * kHeadDim)) +
                      ulong(position % kPageTokens) * ulong(kHeadDim) + ulong(int(lane) * 8);
  for (int i = 0; i < 8; ++i) to[i] = bfloat(x[i]);
  // What attention reads of V beyond a sequence's end, to the end of the key tile, must be finite.
  if (is_key || last_of[row] != row) return;
  for (int rest = 1; (position + rest) % kKeyTile != 0; ++rest) {
    for (int i = 0; i < 8; ++i) to[rest * kHeadDim + i] = bfloat(0.0f);
  }
}

/// What a finished output becomes: f32 for decoding, half for prefill's products.
struct FloatOut {
  device float* to;
  void put(int i, float x) { to[i] = x; }
};
struct HalfOut {
  device half* to;
  void put(int i, float x) { to[i] = to_half(x); }
};
/// Writes a lane's share of outputs that are done: divided by the sum and gated.
template <class Out>
void store_gated(thread Attention& s, device const float* gate, Out out, uint lane) {
  const float inverse = 1.0f / s.total;
  for (int i = 0; i < kTiles; ++i) {
    const float2 x = elements(s.out[i]);
    const int d = i * 8 + matrix_column(lane);
    out.put(d, x.x * inverse * sigmoid(gate[d]));
    out.put(d + 1, x.y * inverse * sigmoid(gate[d + 1]));
  }
}

/// Attention of decoding rows, a SIMD-group for a range of keys. Rows with one range are finished here, the
/// others leave partial outputs, [T, tiles, kMaxRanges, kQueryTile, 256], and (largest, total) to join_ranges.
/// Grid (ranges / kRangeSimdgroups, tiles of query heads of all KV heads, T).
[[kernel]] void attend_ranges(device const bfloat* query [[buffer(0)]], device const bfloat* pages [[buffer(1)]],
                              device const float* projected [[buffer(2)]], device const int* positions [[buffer(3)]],
                              device const int* table_of [[buffer(4)]], device const int* tables [[buffer(5)]],
                              device float* partial [[buffer(6)]], device float2* stats [[buffer(7)]],
                              device float* out [[buffer(8)]], constant AttentionArgs& a [[buffer(9)]],
                              uint3 tg [[threadgroup_position_in_grid]],
                              uint3 groups [[threadgroups_per_grid]],
                              uint simdgroup [[simdgroup_index_in_threadgroup]],
                              uint lane [[thread_index_in_simdgroup]]) {
  const int range = int(tg.x) * kRangeSimdgroups + int(simdgroup);
  const int row = int(tg.z);
  const int group = a.query_heads / a.kv_heads;
  const int tiles = (group + kQueryTile - 1) / kQueryTile;
  const int kv_head = int(tg.y) / tiles;
  const int first_head = int(tg.y) % tiles * kQueryTile;
  const int length = positions[row] + 1;
  const int keys = range_keys(length);
  const int begin = range * keys;
  if (begin >= length) return;

  Cache cache;
  cache.pages = pages + cache_offset(a, kv_head);
  cache.table = tables + table_of[row] * a.page_stride_table;
  cache.page_stride = ulong(a.page_stride);
  cache.kv_heads = a.kv_heads;
  device const bfloat* q =
      query + (ulong(kv_head) * ulong(a.query_rows) + ulong(row * group + first_head)) * ulong(kHeadDim);
  Attention s;
  start_attention(s);
  for (int key = begin; key < min(begin + keys, length); key += kKeyTile)
    attend_tile(s, q, cache, key, length - 1, lane);
  s.total = row_sum(s.total);

  const int tile_row = matrix_row(lane);
  if (keys >= length) {
    if (first_head + tile_row >= group) return;
    const int head = kv_head * group + first_head + tile_row;
    FloatOut to;
    to.to = out + ulong(row * a.query_heads + head) * ulong(kHeadDim);
    store_gated(s, projected + ulong(row) * ulong(a.stride) + ulong((head * 2 + 1) * kHeadDim), to, lane);
    return;
  }
  const ulong at = ((ulong(row) * ulong(groups.y) + ulong(tg.y)) * ulong(kMaxRanges) + ulong(range)) *
                       ulong(kQueryTile) + ulong(tile_row);
  for (int i = 0; i < kTiles; ++i) {
    const float2 x = elements(s.out[i]);
    *(device float2*)(partial + at * ulong(kHeadDim) + ulong(i * 8 + matrix_column(lane))) = x;
  }
  if (matrix_column(lane) == 0) stats[at] = float2(s.largest, s.total);
}

/// Joins the ranges of a head and applies the gate; a thread a value. Grid (Nq, T).
[[kernel]] [[max_total_threads_per_threadgroup(256)]] void join_ranges(
    device const float* partial [[buffer(0)]], device const float2* stats [[buffer(1)]],
    device const float* projected [[buffer(2)]], device const int* positions [[buffer(3)]],
    device float* out [[buffer(4)]], constant AttentionArgs& a [[buffer(5)]],
    uint2 tg [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  constexpr int kPerLane = kMaxRanges / kSimd;
  threadgroup float weights[kMaxRanges];
  threadgroup float inverse[1];
  const int head = int(tg.x);
  const int row = int(tg.y);
  const int group = a.query_heads / a.kv_heads;
  const int tiles = (group + kQueryTile - 1) / kQueryTile;
  const int tile = head / group * tiles + head % group / kQueryTile;
  const int length = positions[row] + 1;
  const int keys = range_keys(length);
  const int ranges = (length + keys - 1) / keys;
  if (ranges == 1) return;
  const ulong first = (ulong(row) * ulong(a.kv_heads * tiles) + ulong(tile)) * ulong(kMaxRanges * kQueryTile) +
                      ulong(head % group % kQueryTile);
  if (simdgroup == 0) {
    float2 mine[kPerLane];
    float largest = kNothing;
    for (int i = 0; i < kPerLane; ++i) {
      const int range = i * kSimd + int(lane);
      mine[i] = float2(kNothing, 0.0f);
      if (range < ranges) mine[i] = stats[first + ulong(range * kQueryTile)];
      largest = max(largest, mine[i].x);
    }
    largest = simd_max(largest);
    float total = 0.0f;
    for (int i = 0; i < kPerLane; ++i) {
      const float weight = exp2(mine[i].x - largest);
      weights[i * kSimd + int(lane)] = weight;
      total = fma(weight, mine[i].y, total);
    }
    total = simd_sum(total);
    if (lane == 0) inverse[0] = 1.0f / total;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0.0f;
  for (int i = 0; i < ranges; ++i)
    sum = fma(weights[i], partial[(first + ulong(i * kQueryTile)) * ulong(kHeadDim) + ulong(tid)], sum);
  const float gate = projected[ulong(row) * ulong(a.stride) + ulong((head * 2 + 1) * kHeadDim + int(tid))];
  out[ulong(row * a.query_heads + head) * ulong(kHeadDim) + ulong(tid)] = sum * inverse[0] * sigmoid(gate);
}

/// Attention of prefill: query rows of a segment are its tokens' heads of one KV head, one after the other, a
/// SIMD-group for kQueryTile of them. The tiles with most keys come first. Grid (tiles, Nkv, segments).
[[kernel]] [[max_total_threads_per_threadgroup(128)]] void attend_rows(
    device const bfloat* query [[buffer(0)]], device const bfloat* pages [[buffer(1)]],
    device const float* projected [[buffer(2)]], device const SegmentRows* segments [[buffer(3)]],
    device const int* tables [[buffer(4)]], device half* out [[buffer(5)]], constant AttentionArgs& a [[buffer(6)]],
    uint3 tg [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  device const SegmentRows& segment = segments[tg.z];
  const int kv_head = int(tg.y);
  const int group = a.query_heads / a.kv_heads;
  const int base = (int(groups.x - 1 - tg.x) * kRangeSimdgroups + int(simdgroup)) * kQueryTile;
  if (base >= segment.rows * group) return;
  Cache cache;
  cache.pages = pages + cache_offset(a, kv_head);
  cache.table = tables + segment.table * a.page_stride_table;
  cache.page_stride = ulong(a.page_stride);
  cache.kv_heads = a.kv_heads;
  device const bfloat* q =
      query + (ulong(kv_head) * ulong(a.query_rows) + ulong(segment.first_row * group + base)) * ulong(kHeadDim);
  const int mine = base + matrix_row(lane);
  const int token = min(mine / group, segment.rows - 1);
  const int last_token = min((base + kQueryTile - 1) / group, segment.rows - 1);
  Attention s;
  start_attention(s);
  for (int key = 0; key <= segment.position + last_token; key += kKeyTile)
    attend_tile(s, q, cache, key, segment.position + token, lane);
  s.total = row_sum(s.total);
  if (mine >= segment.rows * group) return;
  const ulong row = ulong(segment.first_row + token);
  const int head = kv_head * group + mine % group;
  HalfOut to;
  to.to = out + (row * ulong(a.query_heads) + ulong(head)) * ulong(kHeadDim);
  store_gated(s, projected + row * ulong(a.stride) + ulong((head * 2 + 1) * kHeadDim), to, lane);
}
