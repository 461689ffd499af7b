// The chosen experts of a few rows. Every threadgroup of the first product finds its row's choice for itself:
// that costs less than a level of its own.
#include "choose.h"
#include "dot.h"

/// expanded[t, n] = SiLU(gate h) * (up h) of the n-th chosen expert. Grid (columns, K, T).
template <int kGateBits, int kUpBits>
[[kernel]] void experts_in(
    device const float* x [[buffer(0)]], device const float4* gain [[buffer(1)]],
    device const float* logits [[buffer(2)]], device const uint4* gate_codes [[buffer(3)]],
    device const bfloat* gate_scales [[buffer(4)]], device const bfloat* gate_biases [[buffer(5)]],
    device const uint4* up_codes [[buffer(6)]], device const bfloat* up_scales [[buffer(7)]],
    device const bfloat* up_biases [[buffer(8)]], device float* expanded [[buffer(9)]],
    device int* chosen [[buffer(10)]], device float* weights [[buffer(11)]], constant MoeArgs& a [[buffer(12)]],
    uint3 tg [[threadgroup_position_in_grid]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint lane_index [[thread_index_in_simdgroup]]) {
  threadgroup int expert_of_group;
  const int row = int(tg.z);
  const int slot = int(tg.y);
  if (simdgroup == 0) {
    const Chosen c = choose_experts(logits + ulong(row) * ulong(a.logits_stride), a.experts, a.experts_per_token,
                                    lane_index);
    if (int(lane_index) == slot) {
      expert_of_group = c.expert;
      if (tg.x == 0) {
        chosen[row * a.experts_per_token + slot] = c.expert;
        weights[row * a.experts_per_token + slot] = c.weight;
      }
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const int expert = expert_of_group;

  const int lanes = lanes_of_row(a.hidden);
  const int lane = int(lane_index) % lanes;
  const int sets = kSimd / lanes;
  const int first = ((int(tg.x) * kDotSimdgroups + int(simdgroup)) * sets + int(lane_index) / lanes) * kGatedColumns;
  NormedInput<1> input;
  input.gain = gain;
  input.rows[0] = (device const float4*)(x + ulong(row) * ulong(a.hidden));
  input.squares[0] = 0.0f;
  MatrixRows<kGateBits, kGatedColumns, 1> gate;
  MatrixRows<kUpBits, kGatedColumns, 1> up;
  const ulong begin = ulong(expert) * ulong(a.expert_width);
  const ulong end = begin + ulong(a.expert_width);
  Matrix m;
  m.codes = gate_codes;
  m.scales = gate_scales;
  m.biases = gate_biases;
  m.in = a.hidden;
  gate.start(m, begin + ulong(first), end);
  m.codes = up_codes;
  m.scales = up_scales;
  m.biases = up_biases;
  up.start(m, begin + ulong(first), end);
  dot_row_pairs(gate, up, input, a.hidden / kGroup, lane, lanes);
  const float factor = input.factor(0, a.hidden, a.eps, lanes);
  const ulong to = ulong(row * a.experts_per_token + slot) * ulong(a.expert_width);
  for (int r = 0; r < kGatedColumns; ++r) {
    const float g = gate.total(r, 0, lanes) * factor;
    const float u = up.total(r, 0, lanes) * factor;
    if (lane == 0 && first + r < a.expert_width) expanded[to + ulong(first + r)] = silu(g) * u;
  }
}
#define LILY_EXPERTS_IN(gate_bits, up_bits)                                         \
  template [[host_name("experts_in_q" #gate_bits "_q" #up_bits)]] [[kernel]] \
  decltype(experts_in<gate_bits, up_bits>) experts_in<gate_bits, up_bits>;
LILY_EXPERTS_IN(4, 4)
LILY_EXPERTS_IN(4, 8)
LILY_EXPERTS_IN(8, 4)
LILY_EXPERTS_IN(8, 8)

/// kExpertsOutRows sums of a simdgroup's matrix, times `weight`, to `sums`.
template <int kBits>
void weigh_rows(Matrix m, device const float* x, ulong begin, ulong end, int first, float weight,
                threadgroup float* sums, uint lane_index) {
  const int lanes = lanes_of_row(m.in);
  const int lane = int(lane_index) % lanes;
  const int set = int(lane_index) / lanes;
  const int step = kSimd / lanes * kDotRows;
  PlainInput<1> input;
  input.rows[0] = (device const float4*)x;
  for (int base = 0; base < kExpertsOutRows; base += step) {
    const int row = base + set * kDotRows;
    MatrixRows<kBits, kDotRows, 1> rows;
    rows.start(m, begin + ulong(first + row), end);
    dot_rows<1>(rows, input, m.in / kGroup, lane, lanes);
    for (int r = 0; r < kDotRows; ++r) {
      const float sum = rows.total(r, 0, lanes);
      if (lane == 0) sums[row + r] = sum * weight;
    }
  }
}

/// residual += sum of the chosen experts' down products by weight, and the shared expert's by its gate: a
/// SIMD-group for each of them, so that all their loads are in flight together. Grid (H / kExpertsOutRows, T).
template <int kExpertBits, int kSharedBits>
[[kernel]] void experts_out(
    device const float* expanded [[buffer(0)]], device const int* chosen [[buffer(1)]],
    device const float* weights [[buffer(2)]], device const float* shared [[buffer(3)]],
    device const float* logits [[buffer(4)]], device const uint4* codes [[buffer(5)]],
    device const bfloat* scales [[buffer(6)]], device const bfloat* biases [[buffer(7)]],
    device const uint4* shared_codes [[buffer(8)]], device const bfloat* shared_scales [[buffer(9)]],
    device const bfloat* shared_biases [[buffer(10)]], device float* residual [[buffer(11)]],
    constant MoeArgs& a [[buffer(12)]], uint2 tg [[threadgroup_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float sums[(kMaxExpertsPerToken + 1) * kExpertsOutRows];
  const int row = int(tg.y);
  const int first = int(tg.x) * kExpertsOutRows;
  const int slot = int(simdgroup);
  Matrix m;
  if (slot < a.experts_per_token) {
    const int at = row * a.experts_per_token + slot;
    const ulong begin = ulong(chosen[at]) * ulong(a.hidden);
    m.codes = codes;
    m.scales = scales;
    m.biases = biases;
    m.in = a.expert_width;
    weigh_rows<kExpertBits>(m, expanded + ulong(at) * ulong(a.expert_width), begin, begin + ulong(a.hidden), first,
                            weights[at], sums + slot * kExpertsOutRows, lane);
  } else {
    m.codes = shared_codes;
    m.scales = shared_scales;
    m.biases = shared_biases;
    m.in = a.shared_width;
    const float share = sigmoid(logits[row * a.logits_stride + a.experts]);
    weigh_rows<kSharedBits>(m, shared + ulong(row) * ulong(a.shared_width), 0, ulong(a.hidden), first, share,
                            sums + slot * kExpertsOutRows, lane);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const int out = first + int(lane);
  if (simdgroup > 0 || int(lane) >= kExpertsOutRows || out >= a.hidden) return;
  float sum = 0.0f;
  for (int i = 0; i <= a.experts_per_token; ++i) sum += sums[i * kExpertsOutRows + int(lane)];
  residual[ulong(row) * ulong(a.hidden) + ulong(out)] += sum;
}
#define LILY_EXPERTS_OUT(expert_bits, shared_bits)                                         \
  template [[host_name("experts_out_q" #expert_bits "_q" #shared_bits)]] [[kernel]] \
  decltype(experts_out<expert_bits, shared_bits>) experts_out<expert_bits, shared_bits>;
LILY_EXPERTS_OUT(4, 4)
LILY_EXPERTS_OUT(4, 8)
LILY_EXPERTS_OUT(8, 4)
LILY_EXPERTS_OUT(8, 8)
