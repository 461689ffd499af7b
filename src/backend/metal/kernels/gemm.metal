// Products of many rows with quantised matrices: a threadgroup dequantises kTileColumns matrix rows by a group
// of 64 inputs into threadgroup memory and multiplies them with kTileRows or kTallTileRows rows of activations,
// in 8x8 matrices with f32 sums. Dense products and those of sorted experts are the same kernels over a list of tiles.
//
// A row's sums do not depend on its tile: each is taken over the inputs in their order.
#include "tiles.h"

LILY_SHARED int kPad = 8;  // against bank conflicts
LILY_SHARED int kTileStride = kGroup + kPad;

/// One row of a matrix for the threads that fill a tile: 32 inputs under one scale.
template <int kBits, class T>
void dequantize(device const uint4* codes, float scale, float bias, threadgroup T* to) {
  constexpr int kLoads = kBits / 4;  // 16 bytes each
  constexpr int kCodes = 32 / kBits;
  for (int i = 0; i < kLoads; ++i) {
    const uint4 words = codes[i];
    for (int w = 0; w < 4; ++w) {
      for (int c = 0; c < kCodes; ++c) {
        const float code = float((words[w] >> uint(c * kBits)) & ((1u << uint(kBits)) - 1u));
        to[(i * 4 + w) * kCodes + c] = T(fma(scale, code, bias));
      }
    }
  }
}

/// Half of 64 inputs of matrix row `row`: `part` is 0 or 1.
template <int kBits, class T>
void fill_row(device const uint4* codes, device const bfloat* scales, device const bfloat* biases, int in, ulong row,
              int group, int part, threadgroup T* to) {
  const ulong at = row * ulong(in / kGroup) + ulong(group);
  const ulong scale = FC_SMALL_GROUPS ? at * 2 + ulong(part) : at;
  dequantize<kBits>(codes + at * ulong(kBits / 2) + ulong(part * kBits / 4), float(scales[scale]), float(biases[scale]),
                    to + part * (kGroup / 2));
}

/// kHeight rows of a group of activations; rows that the tile lacks are zeros.
template <int kHeight, class T>
void fill_activations(device const T* input, device const int* index, constant GemmArgs& a, int start, int rows,
                      int group, int tid, threadgroup T* to) {
  constexpr int kColumns = kHeight * kGroup / kTileThreads;  // of a thread
  const int r = tid / (kGroup / kColumns);
  const int c = tid % (kGroup / kColumns) * kColumns;
  threadgroup T* row = to + r * kTileStride + c;
  if (r >= rows) {
    for (int i = 0; i < kColumns; ++i) row[i] = T(0.0f);
    return;
  }
  const int from = a.indexed != 0 ? index[start + r] : start + r;
  device const vec<T, 4>* x = (device const vec<T, 4>*)(input + ulong(from) * ulong(a.in) + ulong(group * kGroup + c));
  for (int i = 0; i < kColumns / 4; ++i) *(threadgroup vec<T, 4>*)(row + i * 4) = x[i];
}

/// What a finished pair of neighbouring sums becomes.
struct StoreFloat {
  device float* out;
  void put(ulong at, float x) { out[at] = x; }
};
struct AddFloat {
  device float* out;
  void put(ulong at, float x) { out[at] += x; }
};
struct StoreBfloat {
  device bfloat* out;
  void put(ulong at, float x) { out[at] = bfloat(x); }
};

/// A SIMD-group's quarter of a tile: half of its rows and 32 matrix rows, in two runs of 16. Only as many rows
/// as the tile has are multiplied.
template <int kHeight>
struct Quarter {
  FloatTile sums[kHeight / 16][4];
};
template <int kHeight>
void clear_sums(thread Quarter<kHeight>& q) {
  for (int i = 0; i < kHeight / 16; ++i) {
    for (int j = 0; j < 4; ++j) q.sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  }
}
template <int kHeight, class T>
void multiply_group(thread Quarter<kHeight>& q, threadgroup const T* activations, threadgroup const T* weights, int row,
                    int first, int second, int rows) {
  for (int k = 0; k < kGroup; k += 8) {
    simdgroup_matrix<T, 8, 8> b[4];
    for (int j = 0; j < 4; ++j) {
      const int column = (j < 2 ? first : second) + j % 2 * 8;
      simdgroup_load(b[j], weights + column * kTileStride + k, ulong(kTileStride), ulong2(0, 0), true);
    }
    for (int i = 0; i < kHeight / 16; ++i) {
      if (row + i * 8 >= rows) continue;
      simdgroup_matrix<T, 8, 8> x;
      simdgroup_load(x, activations + (row + i * 8) * kTileStride + k, ulong(kTileStride));
      for (int j = 0; j < 4; ++j) simdgroup_multiply_accumulate(q.sums[i][j], x, b[j], q.sums[i][j]);
    }
  }
}

template <int kHeight, class Out>
void store_quarter(thread Quarter<kHeight>& q, thread Out& out, device const float* weight, constant GemmArgs& a, Tile tile,
                   int row, int column, uint lane) {
  for (int i = 0; i < kHeight / 16; ++i) {
    const int r = row + i * 8 + matrix_row(lane);
    if (r >= tile.rows) continue;
    const float factor = a.weighted != 0 ? weight[tile.start + r] : 1.0f;
    for (int j = 0; j < 4; ++j) {
      const int c = column + j * 8 + matrix_column(lane);
      const ulong at = ulong(tile.start + r) * ulong(a.out_stride) + ulong(c);
      const float2 x = elements(q.sums[i][j]);
      if (c < a.out) out.put(at, x.x * factor);
      if (c + 1 < a.out) out.put(at + 1, x.y * factor);
    }
  }
}

inline Tile load_tile(device const Tile* tiles, uint i) {
  Tile t;
  t.expert = tiles[i].expert;
  t.start = tiles[i].start;
  t.rows = tiles[i].rows;
  return t;
}

/// Grid (tiles, out / kTileColumns).
template <int kBits, int kHeight, class T, class Out, class To>
[[kernel]] [[max_total_threads_per_threadgroup(128)]] void gemm(
    device const T* input [[buffer(0)]], device const int* index [[buffer(1)]],
    device const Tile* tiles [[buffer(2)]], device const uint4* codes [[buffer(3)]],
    device const bfloat* scales [[buffer(4)]], device const bfloat* biases [[buffer(5)]],
    device To* to [[buffer(6)]], device const float* weight [[buffer(7)]], constant GemmArgs& a [[buffer(8)]],
    uint2 tg [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup T activations[kHeight * kTileStride];
  threadgroup T weights[kTileColumns * kTileStride];
  const Tile tile = load_tile(tiles, tg.x);
  if (tile.rows == 0) return;
  const int tid = int(thread_index);
  const int column = int(tg.y) * kTileColumns;
  const int filled = min(column + tid / 2, a.out - 1);
  const ulong source = ulong(tile.expert) * ulong(a.out) + ulong(filled);
  const int row = int(simdgroup) / 2 * (kHeight / 2);
  const int quarter_column = int(simdgroup) % 2 * 32;
  Quarter<kHeight> q;
  clear_sums(q);
  for (int group = 0; group < a.in / kGroup; ++group) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    fill_activations<kHeight>(input, index, a, tile.start, tile.rows, group, tid, activations);
    fill_row<kBits>(codes, scales, biases, a.in, source, group, tid % 2, weights + tid / 2 * kTileStride);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    multiply_group(q, activations, weights, row, quarter_column, quarter_column + 16, tile.rows);
  }
  Out out;
  out.out = to;
  store_quarter(q, out, weight, a, tile, row, column + quarter_column, lane);
}
#define LILY_GEMM(name, bits, height, T, Out, To)                       \
  template [[host_name(name "_q" #bits "_r" #height)]] [[kernel]] \
  decltype(gemm<bits, height, T, Out, To>) gemm<bits, height, T, Out, To>;
#define LILY_GEMM_SIZES(name, T, Out, To) \
  LILY_GEMM(name, 4, 32, T, Out, To)      \
  LILY_GEMM(name, 4, 64, T, Out, To)      \
  LILY_GEMM(name, 8, 32, T, Out, To)      \
  LILY_GEMM(name, 8, 64, T, Out, To)
LILY_GEMM_SIZES("gemm_store", half, StoreFloat, float)
LILY_GEMM_SIZES("gemm_add", half, AddFloat, float)
LILY_GEMM_SIZES("gemm_down_add", bfloat, AddFloat, float)
LILY_GEMM_SIZES("gemm_down", bfloat, StoreBfloat, bfloat)

/// SiLU(gate h) * (up h): half of the tile's matrix rows are gate's, the other half up's. What comes out has
/// no bound, so it is bf16. Grid (tiles, out / (kTileColumns / 2)).
template <int kGateBits, int kUpBits, int kHeight>
[[kernel]] [[max_total_threads_per_threadgroup(128)]] void gemm_gated(
    device const half* input [[buffer(0)]], device const int* index [[buffer(1)]],
    device const Tile* tiles [[buffer(2)]], device const uint4* gate_codes [[buffer(3)]],
    device const bfloat* gate_scales [[buffer(4)]], device const bfloat* gate_biases [[buffer(5)]],
    device const uint4* up_codes [[buffer(6)]], device const bfloat* up_scales [[buffer(7)]],
    device const bfloat* up_biases [[buffer(8)]], device bfloat* out [[buffer(9)]],
    constant GemmArgs& a [[buffer(10)]], uint2 tg [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  constexpr int kColumns = kTileColumns / 2;
  threadgroup half activations[kHeight * kTileStride];
  threadgroup half weights[kTileColumns * kTileStride];
  const Tile tile = load_tile(tiles, tg.x);
  if (tile.rows == 0) return;
  const int tid = int(thread_index);
  const int column = int(tg.y) * kColumns;
  const bool fills_gate = tid / 2 < kColumns;
  const int filled = min(column + tid / 2 % kColumns, a.out - 1);
  const ulong source = ulong(tile.expert) * ulong(a.out) + ulong(filled);
  const int row = int(simdgroup) / 2 * (kHeight / 2);
  const int quarter_column = int(simdgroup) % 2 * 16;
  Quarter<kHeight> q;
  clear_sums(q);
  for (int group = 0; group < a.in / kGroup; ++group) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    fill_activations<kHeight>(input, index, a, tile.start, tile.rows, group, tid, activations);
    threadgroup half* to = weights + tid / 2 * kTileStride;
    if (fills_gate)
      fill_row<kGateBits>(gate_codes, gate_scales, gate_biases, a.in, source, group, tid % 2, to);
    else
      fill_row<kUpBits>(up_codes, up_scales, up_biases, a.in, source, group, tid % 2, to);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    multiply_group(q, activations, weights, row, quarter_column, kColumns + quarter_column, tile.rows);
  }
  for (int i = 0; i < kHeight / 16; ++i) {
    const int r = row + i * 8 + matrix_row(lane);
    if (r >= tile.rows) continue;
    for (int j = 0; j < 2; ++j) {
      const float2 gate = elements(q.sums[i][j]);
      const float2 up = elements(q.sums[i][j + 2]);
      const int c = column + quarter_column + j * 8 + matrix_column(lane);
      const ulong at = ulong(tile.start + r) * ulong(a.out_stride) + ulong(c);
      if (c < a.out) out[at] = bfloat(silu(gate.x) * up.x);
      if (c + 1 < a.out) out[at + 1] = bfloat(silu(gate.y) * up.y);
    }
  }
}
#define LILY_GEMM_GATED(gate_bits, up_bits, height)                                             \
  template [[host_name("gemm_gated_q" #gate_bits "_q" #up_bits "_r" #height)]] [[kernel]] \
  decltype(gemm_gated<gate_bits, up_bits, height>) gemm_gated<gate_bits, up_bits, height>;
LILY_GEMM_GATED(4, 4, 32)
LILY_GEMM_GATED(4, 4, 64)
LILY_GEMM_GATED(4, 8, 32)
LILY_GEMM_GATED(4, 8, 64)
LILY_GEMM_GATED(8, 4, 32)
LILY_GEMM_GATED(8, 4, 64)
LILY_GEMM_GATED(8, 8, 32)
LILY_GEMM_GATED(8, 8, 64)
