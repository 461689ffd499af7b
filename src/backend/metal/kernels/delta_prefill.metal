// The gated delta rule in chunks of kDeltaChunk tokens. With G_i the sum of the log decays up to token i of a
// chunk and S the state before it, the updates d_i = beta_i (v_i - decayed state^T k_i) solve
//   (I + A) d = beta v - beta e^G k S,   A_ij = beta_i e^(G_i - G_j) k_i k_j  for j < i,
// so d = u - w S with T = (I + A)^-1, u = T (beta v), w = T (beta e^G k); and
//   o = e^G q S + P d,  P_ij = e^(G_i - G_j) q_i k_j  for j <= i,    S' = e^(G_n) S + (e^(G_n - G) k)^T d.
// What does not depend on S is computed for all chunks at once (prepare_chunks), the rest one after the other,
// a threadgroup for kDeltaColumns columns of a head (run_chunks). All of it is f32; no exponent is positive.
//
// Chunks lie on absolute positions, so a prompt cut at multiples of them gives the same bits. Rows are laid
// out by chunk, [chunks, kDeltaChunk]: those that a chunk lacks are zeros that decay and write nothing.
#include "delta.h"
#include "tiles.h"

struct ConvRow {
  device const float* projected;  // this row
  device const float* ring;
  int stride;
  int of_segment;  // row of it
  int position;
  int channels;
  /// The channel `back` rows ago: of this step, or of the slot's ring.
  float past(int back, int channel) const {
    if (of_segment >= back) return projected[channel - back * stride];
    return ring[((position - back) & 3) * channels + channel];
  }
  float convolved(device const float4* taps, int channel) const {
    return convolve(taps[channel], past(3, channel), past(2, channel), past(1, channel), past(0, channel));
  }
};

/// Convolution, L2 norms and gates; a SIMD-group a head: q and k of a key head with the gates of its value
/// heads, or v of a value head. Grid (heads / kHeadSimdgroups, chunk rows).
[[kernel]] void convolve_rows(device const float* projected [[buffer(0)]], device const float4* taps [[buffer(1)]],
                              device const float* A_log [[buffer(2)]], device const float* dt_bias [[buffer(3)]],
                              device const float* slots [[buffer(4)]],
                              device const SegmentRows* segments [[buffer(5)]],
                              device const int* segment_of [[buffer(6)]],
                              device const int* row_of_chunk_row [[buffer(7)]], device float* query [[buffer(8)]],
                              device float* key [[buffer(9)]], device float* value [[buffer(10)]],
                              device float2* gates [[buffer(11)]], constant DeltaArgs& a [[buffer(12)]],
                              uint2 tg [[threadgroup_position_in_grid]],
                              uint simdgroup [[simdgroup_index_in_threadgroup]],
                              uint lane_index [[thread_index_in_simdgroup]]) {
  constexpr int kPerLane = kLinearDim / kSimd;
  const int lane = int(lane_index);
  const int head = int(tg.x) * kHeadSimdgroups + int(simdgroup);
  if (head >= a.key_heads + a.value_heads) return;
  const ulong to = ulong(tg.y);
  const int row = row_of_chunk_row[tg.y];
  const bool is_value = head >= a.key_heads;
  const int per_key = a.value_heads / a.key_heads;
  const int key_dim = a.key_heads * kLinearDim;
  device float* q_to = query + to * ulong(key_dim) + ulong(head * kLinearDim);
  device float* k_to = key + to * ulong(key_dim) + ulong(head * kLinearDim);
  device float* v_to =
      value + to * ulong(a.value_heads * kLinearDim) + ulong((head - a.key_heads) * kLinearDim);
  if (row < 0) {
    for (int i = lane; i < kLinearDim; i += kSimd) {
      if (is_value) {
        v_to[i] = 0.0f;
      } else {
        q_to[i] = 0.0f;
        k_to[i] = 0.0f;
      }
    }
    for (int i = lane; i < per_key && !is_value; i += kSimd)
      gates[to * ulong(a.value_heads) + ulong(head * per_key + i)] = float2(0.0f, 0.0f);
    return;
  }
  device const SegmentRows& segment = segments[segment_of[row]];
  ConvRow conv;
  conv.projected = projected + ulong(row) * ulong(a.stride);
  conv.ring = slots + ulong(segment.slot) * ulong(a.slot_stride) + ulong(a.layer_offset) + ring_offset(a);
  conv.stride = a.stride;
  conv.of_segment = row - segment.first_row;
  conv.position = segment.position + conv.of_segment;
  conv.channels = delta_channels(a);
  if (is_value) {
    for (int i = lane; i < kLinearDim; i += kSimd)
      v_to[i] = conv.convolved(taps, 2 * key_dim + (head - a.key_heads) * kLinearDim + i);
    return;
  }
  float q[kPerLane];
  float k[kPerLane];
  float q_square = 0.0f;
  float k_square = 0.0f;
  for (int i = 0; i < kPerLane; ++i) {
    const int channel = head * kLinearDim + i * kSimd + lane;
    q[i] = conv.convolved(taps, channel);
    k[i] = conv.convolved(taps, key_dim + channel);
    q_square = fma(q[i], q[i], q_square);
    k_square = fma(k[i], k[i], k_square);
  }
  const float q_scale = rsqrt(simd_sum(q_square) + kL2Epsilon) * kQueryScale;
  const float k_scale = rsqrt(simd_sum(k_square) + kL2Epsilon);
  for (int i = 0; i < kPerLane; ++i) {
    q_to[i * kSimd + lane] = q[i] * q_scale;
    k_to[i * kSimd + lane] = k[i] * k_scale;
  }
  for (int i = lane; i < per_key; i += kSimd) {
    const int value_head = head * per_key + i;
    const DeltaGates g = delta_gates(conv.projected[a.a_offset + value_head], conv.projected[a.b_offset + value_head],
                                     A_log[value_head], dt_bias[value_head]);
    gates[to * ulong(a.value_heads) + ulong(value_head)] = float2(g.log_decay, g.beta);
  }
}

/// The last rows before the convolution into the slots' rings. Grid (channels, segments).
[[kernel]] void keep_rows(device const float* projected [[buffer(0)]], device float* slots [[buffer(1)]],
                          device const SegmentRows* segments [[buffer(2)]], constant DeltaArgs& a [[buffer(3)]],
                          uint2 at [[thread_position_in_grid]]) {
  const int channels = delta_channels(a);
  const int channel = int(at.x);
  if (channel >= channels) return;
  device const SegmentRows& segment = segments[at.y];
  device float* ring = slots + ulong(segment.slot) * ulong(a.slot_stride) + ulong(a.layer_offset) + ring_offset(a);
  for (int i = max(segment.rows - kConvRing, 0); i < segment.rows; ++i) {
    const ulong row = ulong(segment.first_row + i);
    ring[((segment.position + i) & 3) * channels + channel] = projected[row * ulong(a.stride) + ulong(channel)];
  }
}

LILY_SHARED int kChunkSimdgroups = kDeltaChunk / 8;  // eight tokens each
LILY_SHARED int kChunkStride = kDeltaChunk + 4;      // of threadgroup tiles, against bank conflicts
LILY_SHARED int kDimTiles = kLinearDim / 8;
LILY_SHARED int kTokenTiles = kDeltaChunk / 8;

/// rows x keys^T, 8 rows of a chunk and all its tokens.
inline void multiply_keys(thread FloatTile* sums, device const float* rows, device const float* keys, ulong stride) {
  for (int n = 0; n < kTokenTiles; ++n) sums[n] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (int i = 0; i < kDimTiles; ++i) {
    FloatTile x;
    simdgroup_load(x, rows + i * 8, stride);
    for (int n = 0; n < kTokenTiles; ++n) {
      FloatTile k;
      simdgroup_load(k, keys + ulong(n * 8) * stride + ulong(i * 8), stride, ulong2(0, 0), true);
      simdgroup_multiply_accumulate(sums[n], x, k, sums[n]);
    }
  }
}

/// out = t rows: 8 tokens, all 128 dims.
inline void multiply_solution(threadgroup const float* t, device const float* rows, ulong stride, device float* out) {
  for (int n = 0; n < kDimTiles; ++n) {
    FloatTile sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (int k = 0; k < kTokenTiles; ++k) {
      FloatTile x;
      FloatTile y;
      simdgroup_load(x, t + k * 8, ulong(kChunkStride));
      simdgroup_load(y, rows + ulong(k * 8) * stride + ulong(n * 8), stride);
      simdgroup_multiply_accumulate(sum, x, y, sum);
    }
    simdgroup_store(sum, out + n * 8, ulong(kLinearDim));
  }
}

/// Grid (chunks, Hv).
[[kernel]] [[max_total_threads_per_threadgroup(128)]] void prepare_chunks(
    device const float* query [[buffer(0)]], device const float* key [[buffer(1)]],
    device const float* value [[buffer(2)]], device const float2* gates [[buffer(3)]],
    device float* u [[buffer(4)]], device float* w [[buffer(5)]], device float* p [[buffer(6)]],
    device float* sums [[buffer(7)]], constant DeltaArgs& a [[buffer(8)]],
    uint2 tg [[threadgroup_position_in_grid]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  static_assert(kDeltaChunk == kSimd, "a token a lane");
  threadgroup float decays[kDeltaChunk];  // G
  threadgroup float betas[kDeltaChunk];
  threadgroup float system[kDeltaChunk * kChunkStride];  // A, then T beta
  threadgroup float inverse[kDeltaChunk * kChunkStride]; // T, then T beta e^G
  const int head = int(tg.y);
  const int key_head = head / (a.value_heads / a.key_heads);
  const ulong first = ulong(tg.x) * ulong(kDeltaChunk);
  const ulong chunk = ulong(tg.x) * ulong(a.value_heads) + ulong(head);
  const ulong key_stride = ulong(a.key_heads * kLinearDim);
  const ulong value_stride = ulong(a.value_heads * kLinearDim);
  device const float* k = key + first * key_stride + ulong(key_head * kLinearDim);
  device const float* q = query + first * key_stride + ulong(key_head * kLinearDim);
  device const float* v = value + first * value_stride + ulong(head * kLinearDim);
  if (simdgroup == 0) {
    const float2 g = gates[(first + ulong(lane)) * ulong(a.value_heads) + ulong(head)];
    const float sum = simd_prefix_inclusive_sum(g.x);
    decays[lane] = sum;
    betas[lane] = g.y;
    sums[chunk * ulong(kDeltaChunk) + ulong(lane)] = sum;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);

  const int token = int(simdgroup) * 8;
  const int i = token + matrix_row(lane);
  FloatTile products[kTokenTiles];
  multiply_keys(products, k + ulong(token) * key_stride, k, key_stride);
  for (int n = 0; n < kTokenTiles; ++n) {
    const float2 x = elements(products[n]);
    const int j = n * 8 + matrix_column(lane);
    system[i * kChunkStride + j] = j < i ? x.x * betas[i] * exp(decays[i] - decays[j]) : 0.0f;
    system[i * kChunkStride + j + 1] = j + 1 < i ? x.y * betas[i] * exp(decays[i] - decays[j + 1]) : 0.0f;
  }
  multiply_keys(products, q + ulong(token) * key_stride, k, key_stride);
  device float* p_row = p + (chunk * ulong(kDeltaChunk) + ulong(i)) * ulong(kDeltaChunk);
  for (int n = 0; n < kTokenTiles; ++n) {
    const float2 x = elements(products[n]);
    const int j = n * 8 + matrix_column(lane);
    p_row[j] = j <= i ? x.x * exp(decays[i] - decays[j]) : 0.0f;
    p_row[j + 1] = j + 1 <= i ? x.y * exp(decays[i] - decays[j + 1]) : 0.0f;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);

  // T by forward substitution, a column a lane: no lane reads another's.
  if (simdgroup == 0) {
    const int column = int(lane);
    for (int r = 0; r < kDeltaChunk; ++r) {
      float x = r == column ? 1.0f : 0.0f;
      for (int m = 0; m < r; ++m) x = fma(-system[r * kChunkStride + m], inverse[m * kChunkStride + column], x);
      inverse[r * kChunkStride + column] = x;
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (int r = 0; r < kDeltaChunk; ++r) {
      const float x = inverse[r * kChunkStride + column] * betas[column];
      system[r * kChunkStride + column] = x;
      inverse[r * kChunkStride + column] = x * exp(decays[column]);
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const ulong at = (chunk * ulong(kDeltaChunk) + ulong(token)) * ulong(kLinearDim);
  multiply_solution(system + token * kChunkStride, v, value_stride, u + at);
  multiply_solution(inverse + token * kChunkStride, k, key_stride, w + at);
}

LILY_SHARED int kColumnTiles = kDeltaColumns / 8;
LILY_SHARED int kColumnStride = kDeltaColumns + 4;
LILY_SHARED int kStateTiles = kDimTiles / kChunkSimdgroups;  // of rows of the state, of a SIMD-group

/// Grid (kDeltaParts, Hv, segments). A SIMD-group has 32 rows of the state and eight tokens of each chunk.
/// What comes out replaces `value`.
[[kernel]] [[max_total_threads_per_threadgroup(128)]] void run_chunks(
    device const float* query [[buffer(0)]], device const float* key [[buffer(1)]], device const float* u [[buffer(2)]],
    device const float* w [[buffer(3)]], device const float* p [[buffer(4)]], device const float* sums [[buffer(5)]],
    device float* slots [[buffer(6)]], device const SegmentRows* segments [[buffer(7)]],
    device float* value [[buffer(8)]], constant DeltaArgs& a [[buffer(9)]],
    uint3 tg [[threadgroup_position_in_grid]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float state_rows[kLinearDim * kColumnStride];
  threadgroup float updates[kDeltaChunk * kColumnStride];  // d
  threadgroup float decayed[kDeltaChunk * kColumnStride];  // e^(G_n - G) d
  device const SegmentRows& segment = segments[tg.z];
  const int head = int(tg.y);
  const int column = int(tg.x) * kDeltaColumns;
  const int key_head = head / (a.value_heads / a.key_heads);
  const ulong key_stride = ulong(a.key_heads * kLinearDim);
  const int token = int(simdgroup) * 8;
  const int dim = int(simdgroup) * kStateTiles * 8;
  device float* kept = slots + ulong(segment.slot) * ulong(a.slot_stride) + ulong(a.layer_offset) +
                       ulong(head * kLinearDim * kLinearDim + dim * kLinearDim + column);
  FloatTile state[kStateTiles][kColumnTiles];
  for (int m = 0; m < kStateTiles; ++m) {
    for (int n = 0; n < kColumnTiles; ++n)
      simdgroup_load(state[m][n], kept + m * 8 * kLinearDim + n * 8, ulong(kLinearDim));
  }
  for (int c = segment.first_chunk; c < segment.first_chunk + segment.chunks; ++c) {
    const ulong first = ulong(c) * ulong(kDeltaChunk);
    const ulong chunk = ulong(c) * ulong(a.value_heads) + ulong(head);
    device const float* g = sums + chunk * ulong(kDeltaChunk);
    device const float* q = query + (first + ulong(token)) * key_stride + ulong(key_head * kLinearDim);
    device const float* k = key + first * key_stride + ulong(key_head * kLinearDim);
    const ulong at = (chunk * ulong(kDeltaChunk) + ulong(token)) * ulong(kLinearDim);
    for (int m = 0; m < kStateTiles; ++m) {
      for (int n = 0; n < kColumnTiles; ++n)
        simdgroup_store(state[m][n], state_rows + (dim + m * 8) * kColumnStride + n * 8, ulong(kColumnStride));
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    FloatTile met[kColumnTiles];
    FloatTile out[kColumnTiles];
    for (int n = 0; n < kColumnTiles; ++n) {
      met[n] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
      out[n] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
    for (int i = 0; i < kDimTiles; ++i) {
      FloatTile w_tile;
      FloatTile q_tile;
      simdgroup_load(w_tile, w + at + ulong(i * 8), ulong(kLinearDim));
      simdgroup_load(q_tile, q + i * 8, key_stride);
      for (int n = 0; n < kColumnTiles; ++n) {
        FloatTile s;
        simdgroup_load(s, state_rows + i * 8 * kColumnStride + n * 8, ulong(kColumnStride));
        simdgroup_multiply_accumulate(met[n], w_tile, s, met[n]);
        simdgroup_multiply_accumulate(out[n], q_tile, s, out[n]);
      }
    }
    const int row = token + matrix_row(lane);
    const float before = exp(g[row]);
    const float after = exp(g[kDeltaChunk - 1] - g[row]);
    for (int n = 0; n < kColumnTiles; ++n) {
      FloatTile u_tile;
      simdgroup_load(u_tile, u + at + ulong(column + n * 8), ulong(kLinearDim));
      const float2 d = elements(u_tile) - elements(met[n]);
      const int to = row * kColumnStride + n * 8 + matrix_column(lane);
      updates[to] = d.x;
      updates[to + 1] = d.y;
      decayed[to] = d.x * after;
      decayed[to + 1] = d.y * after;
      scale_elements(out[n], before);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    for (int i = 0; i < kTokenTiles; ++i) {
      FloatTile p_tile;
      simdgroup_load(p_tile, p + (chunk * ulong(kDeltaChunk) + ulong(token)) * ulong(kDeltaChunk) + ulong(i * 8),
                     ulong(kDeltaChunk));
      for (int n = 0; n < kColumnTiles; ++n) {
        FloatTile d;
        simdgroup_load(d, updates + i * 8 * kColumnStride + n * 8, ulong(kColumnStride));
        simdgroup_multiply_accumulate(out[n], p_tile, d, out[n]);
      }
    }
    const ulong value_stride = ulong(a.value_heads * kLinearDim);
    device float* to = value + (first + ulong(token)) * value_stride + ulong(head * kLinearDim + column);
    for (int n = 0; n < kColumnTiles; ++n) simdgroup_store(out[n], to + n * 8, value_stride);

    const float decay = exp(g[kDeltaChunk - 1]);
    for (int m = 0; m < kStateTiles; ++m) {
      for (int n = 0; n < kColumnTiles; ++n) {
        scale_elements(state[m][n], decay);
      }
      for (int i = 0; i < kTokenTiles; ++i) {
        FloatTile k_tile;  // transposed: rows are dims, inputs tokens
        simdgroup_load(k_tile, k + ulong(i * 8) * key_stride + ulong(dim + m * 8), key_stride, ulong2(0, 0), true);
        for (int n = 0; n < kColumnTiles; ++n) {
          FloatTile d;
          simdgroup_load(d, decayed + i * 8 * kColumnStride + n * 8, ulong(kColumnStride));
          simdgroup_multiply_accumulate(state[m][n], k_tile, d, state[m][n]);
        }
      }
    }
  }
  for (int m = 0; m < kStateTiles; ++m) {
    for (int n = 0; n < kColumnTiles; ++n)
      simdgroup_store(state[m][n], kept + m * 8 * kLinearDim + n * 8, ulong(kLinearDim));
  }
}

/// Norm first, then the gate; a SIMD-group a head. Grid (Hv / kHeadSimdgroups, T).
[[kernel]] void gated_norm(device const float* value [[buffer(0)]], device const float* projected [[buffer(1)]],
                           device const float* gain [[buffer(2)]], device const int* chunk_row_of [[buffer(3)]],
                           device half* out [[buffer(4)]], constant DeltaArgs& a [[buffer(5)]],
                           uint2 tg [[threadgroup_position_in_grid]],
                           uint simdgroup [[simdgroup_index_in_threadgroup]],
                           uint lane [[thread_index_in_simdgroup]]) {
  constexpr int kPerLane = kLinearDim / kSimd;
  const int head = int(tg.x) * kHeadSimdgroups + int(simdgroup);
  if (head >= a.value_heads) return;
  const ulong row = ulong(tg.y);
  const ulong value_dim = ulong(a.value_heads * kLinearDim);
  device const float* y = value + ulong(chunk_row_of[tg.y]) * value_dim + ulong(head * kLinearDim);
  device const float* z = projected + row * ulong(a.stride) + ulong(a.z_offset + head * kLinearDim);
  float square = 0.0f;
  for (int i = 0; i < kPerLane; ++i) square = fma(y[i * kSimd + int(lane)], y[i * kSimd + int(lane)], square);
  const float inverse = rsqrt(simd_sum(square) / float(kLinearDim) + a.eps);
  for (int i = 0; i < kPerLane; ++i) {
    const int d = i * kSimd + int(lane);
    out[row * value_dim + ulong(head * kLinearDim + d)] = to_half(y[d] * inverse * gain[d] * silu(z[d]));
  }
}
