// Matrix-vector products of a few rows: in-projections and the head with the norm before them, gated products
// of the shared expert, out-projections that add to the residual stream.
#include "dot.h"

/// This lane's place: which of the simdgroup's rows it sums, and as which of the lanes that share them.
struct Place {
  int lanes;
  int lane;      // among those that share a row
  int first;     // row of the matrix
};
/// Rows that a simdgroup takes: `rows` for every `lanes` lanes.
inline Place place_lane(int in, int rows, uint tg, uint simdgroup, uint lane) {
  Place p;
  p.lanes = lanes_of_row(in);
  p.lane = int(lane) % p.lanes;
  const int sets = kSimd / p.lanes;
  p.first = ((int(tg) * kDotSimdgroups + int(simdgroup)) * sets + int(lane) / p.lanes) * rows;
  return p;
}

/// Grid (out / rows of a threadgroup, rows / kTokens).
template <int kBits, int kTokens>
[[kernel]] void project(device const float* x [[buffer(0)]], device const int* index [[buffer(1)]],
                        device const float4* gain [[buffer(2)]], device const uint4* codes [[buffer(3)]],
                        device const bfloat* scales [[buffer(4)]], device const bfloat* biases [[buffer(5)]],
                        device float* out [[buffer(6)]], constant ProjectArgs& a [[buffer(7)]],
                        uint2 tg [[threadgroup_position_in_grid]],
                        uint simdgroup [[simdgroup_index_in_threadgroup]],
                        uint lane [[thread_index_in_simdgroup]]) {
  const Place p = place_lane(a.in, kDotRows, tg.x, simdgroup, lane);
  NormedInput<kTokens> input;
  input.gain = gain;
  for (int t = 0; t < kTokens; ++t) {
    const int row = min(int(tg.y) * kTokens + t, a.rows - 1);
    input.rows[t] = (device const float4*)(x + ulong(a.indexed != 0 ? index[row] : row) * ulong(a.in));
    input.squares[t] = 0.0f;
  }
  MatrixRows<kBits, kDotRows, kTokens> rows;
  Matrix m;
  m.codes = codes;
  m.scales = scales;
  m.biases = biases;
  m.in = a.in;
  rows.start(m, ulong(p.first), ulong(a.out));
  dot_rows<kTokens>(rows, input, a.in / kGroup, p.lane, p.lanes);
  for (int t = 0; t < kTokens; ++t) {
    const float factor = input.factor(t, a.in, a.eps, p.lanes);
    const int row = int(tg.y) * kTokens + t;
    for (int r = 0; r < kDotRows; ++r) {
      const float sum = rows.total(r, t, p.lanes) * factor;
      if (p.lane == 0 && row < a.rows && p.first + r < a.out)
        out[ulong(row) * ulong(a.out_stride) + ulong(p.first + r)] = sum;
    }
  }
}
#define LILY_PROJECT(bits, tokens)                                     \
  template [[host_name("project_q" #bits "_t" #tokens)]] [[kernel]] \
  decltype(project<bits, tokens>) project<bits, tokens>;
LILY_PROJECT(4, 1)
LILY_PROJECT(4, 2)
LILY_PROJECT(4, 4)
LILY_PROJECT(8, 1)
LILY_PROJECT(8, 2)
LILY_PROJECT(8, 4)

/// Grid (out / columns of a threadgroup, rows).
template <int kGateBits, int kUpBits>
[[kernel]] void gated(device const float* x [[buffer(0)]], device const float4* gain [[buffer(1)]],
                      device const uint4* gate_codes [[buffer(2)]],
                      device const bfloat* gate_scales [[buffer(3)]],
                      device const bfloat* gate_biases [[buffer(4)]],
                      device const uint4* up_codes [[buffer(5)]], device const bfloat* up_scales [[buffer(6)]],
                      device const bfloat* up_biases [[buffer(7)]], device float* out [[buffer(8)]],
                      constant GatedArgs& a [[buffer(9)]], uint2 tg [[threadgroup_position_in_grid]],
                      uint simdgroup [[simdgroup_index_in_threadgroup]],
                      uint lane [[thread_index_in_simdgroup]]) {
  const Place p = place_lane(a.in, kGatedColumns, tg.x, simdgroup, lane);
  NormedInput<1> input;
  input.gain = gain;
  input.rows[0] = (device const float4*)(x + ulong(tg.y) * ulong(a.in));
  input.squares[0] = 0.0f;
  MatrixRows<kGateBits, kGatedColumns, 1> gate;
  MatrixRows<kUpBits, kGatedColumns, 1> up;
  Matrix m;
  m.codes = gate_codes;
  m.scales = gate_scales;
  m.biases = gate_biases;
  m.in = a.in;
  gate.start(m, ulong(p.first), ulong(a.out));
  m.codes = up_codes;
  m.scales = up_scales;
  m.biases = up_biases;
  up.start(m, ulong(p.first), ulong(a.out));
  dot_row_pairs(gate, up, input, a.in / kGroup, p.lane, p.lanes);
  const float factor = input.factor(0, a.in, a.eps, p.lanes);
  for (int r = 0; r < kGatedColumns; ++r) {
    const float g = gate.total(r, 0, p.lanes) * factor;
    const float u = up.total(r, 0, p.lanes) * factor;
    if (p.lane == 0 && p.first + r < a.out) out[ulong(tg.y) * ulong(a.out) + ulong(p.first + r)] = silu(g) * u;
  }
}
#define LILY_GATED(gate_bits, up_bits)                                         \
  template [[host_name("gated_q" #gate_bits "_q" #up_bits)]] [[kernel]] \
  decltype(gated<gate_bits, up_bits>) gated<gate_bits, up_bits>;
LILY_GATED(4, 4)
LILY_GATED(4, 8)
LILY_GATED(8, 4)
LILY_GATED(8, 8)

template <int kBits, int kTokens, class Input>
void add_product(thread Input& input, Matrix m, device float* residual, constant AddProductArgs& a, uint2 tg,
                 Place p) {
  MatrixRows<kBits, kDotRows, kTokens> rows;
  rows.start(m, ulong(p.first), ulong(a.out));
  dot_rows<kTokens>(rows, input, a.in / kGroup, p.lane, p.lanes);
  for (int t = 0; t < kTokens; ++t) {
    const int row = int(tg.y) * kTokens + t;
    for (int r = 0; r < kDotRows; ++r) {
      const float sum = rows.total(r, t, p.lanes);
      if (p.lane == 0 && row < a.rows && p.first + r < a.out)
        residual[ulong(row) * ulong(a.out) + ulong(p.first + r)] += sum;
    }
  }
}

/// Grid (out / rows of a threadgroup, rows / kTokens).
template <int kBits, int kTokens>
[[kernel]] void add_plain(device const float* x [[buffer(0)]], device const uint4* codes [[buffer(1)]],
                          device const bfloat* scales [[buffer(2)]], device const bfloat* biases [[buffer(3)]],
                          device float* residual [[buffer(4)]], constant AddProductArgs& a [[buffer(5)]],
                          uint2 tg [[threadgroup_position_in_grid]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]]) {
  PlainInput<kTokens> input;
  for (int t = 0; t < kTokens; ++t) {
    const int row = min(int(tg.y) * kTokens + t, a.rows - 1);
    input.rows[t] = (device const float4*)(x + ulong(row) * ulong(a.in));
  }
  Matrix m;
  m.codes = codes;
  m.scales = scales;
  m.biases = biases;
  m.in = a.in;
  add_product<kBits, kTokens>(input, m, residual, a, tg, place_lane(a.in, kDotRows, tg.x, simdgroup, lane));
}

/// The same for the gated norm of what the delta rule gave.
template <int kBits, int kTokens>
[[kernel]] void add_gated_norm(
    device const float* x [[buffer(0)]], device const uint4* codes [[buffer(1)]],
    device const bfloat* scales [[buffer(2)]], device const bfloat* biases [[buffer(3)]],
    device float* residual [[buffer(4)]], constant AddProductArgs& a [[buffer(5)]],
    device const float* gate [[buffer(6)]], device const float4* squares [[buffer(7)]],
    device const float4* gain [[buffer(8)]], uint2 tg [[threadgroup_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  static_assert(kDeltaParts == 4, "a head's sums of squares are a float4");
  GatedNormInput<kTokens> input;
  input.gain = gain;
  input.eps = a.eps;
  for (int t = 0; t < kTokens; ++t) {
    const int row = min(int(tg.y) * kTokens + t, a.rows - 1);
    input.rows[t] = (device const float4*)(x + ulong(row) * ulong(a.in));
    input.gates[t] = (device const float4*)(gate + ulong(row) * ulong(a.gate_stride));
    input.squares[t] = squares + ulong(row) * ulong(a.in / kLinearDim);
  }
  Matrix m;
  m.codes = codes;
  m.scales = scales;
  m.biases = biases;
  m.in = a.in;
  add_product<kBits, kTokens>(input, m, residual, a, tg, place_lane(a.in, kDotRows, tg.x, simdgroup, lane));
}
#define LILY_ADD(bits, tokens)                                                        \
  template [[host_name("add_plain_q" #bits "_t" #tokens)]] [[kernel]]      \
  decltype(add_plain<bits, tokens>) add_plain<bits, tokens>;                          \
  template [[host_name("add_gated_norm_q" #bits "_t" #tokens)]] [[kernel]] \
  decltype(add_gated_norm<bits, tokens>) add_gated_norm<bits, tokens>;
LILY_ADD(4, 1)
LILY_ADD(4, 2)
LILY_ADD(4, 4)
LILY_ADD(8, 1)
LILY_ADD(8, 2)
LILY_ADD(8, 4)
