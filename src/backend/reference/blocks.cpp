// The five blocks. Section numbers are those of docs/model.md.
#include <algorithm>
#include <array>
#include <cmath>

#include "backend/reference/reference_backend.h"

namespace lily::reference {
namespace {

void add_to(Rows& x, const Rows& y) {
  for (std::size_t i = 0; i < x.data.size(); ++i) x.data[i] += y.data[i];
}

std::span<float> slice(std::span<float> x, std::int64_t begin, std::int64_t count) {
  return x.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
}
std::span<const float> slice(std::span<const float> x, std::int64_t begin, std::int64_t count) {
  return x.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
}

// down( SiLU(gate h) * (up h) )
Rows swiglu(const QuantizedMatrix& gate, const QuantizedMatrix& up, const QuantizedMatrix& down,
            const Rows& h, std::int64_t expert = 0) {
  Rows g = linear(gate, h, expert);
  const Rows u = linear(up, h, expert);
  for (std::size_t i = 0; i < g.data.size(); ++i) g.data[i] = silu(g.data[i]) * u.data[i];
  return linear(down, g, expert);
}

Rows single_row(std::span<const float> row) {
  Rows r(1, static_cast<std::int64_t>(row.size()));
  std::ranges::copy(row, r.data.begin());
  return r;
}

}  // namespace

void ReferenceBackend::embed(const EmbedBlock& block) {
  std::int64_t row = 0;
  for (const Segment& segment : batch_.segments) {
    for (const TokenId token : segment.tokens)
      dequantize_row(block.embed_tokens, 0, token, residual_.row(row++));
  }
}

// 4.4 step 2: c[ch] = SiLU( sum_j w[ch, j] * qkv[t - 3 + j, ch] ); the window keeps the last 3 rows before
// convolution.
void ReferenceBackend::convolve(std::span<float> window, const Vector& taps,
                                std::span<float> channels) const {
  const std::int64_t C = s_.conv_channels();
  for (std::int64_t ch = 0; ch < C; ++ch) {
    const auto tap = slice(std::span<const float>(taps), ch * kConvKernel, kConvKernel);
    float& current = channels[static_cast<std::size_t>(ch)];
    float* past = window.data() + ch;
    const float sum = tap[0] * past[0] + tap[1] * past[C] + tap[2] * past[2 * C] + tap[3] * current;
    past[0] = past[C];
    past[C] = past[2 * C];
    past[2 * C] = current;
    current = silu(sum);
  }
}

// 4.4 steps 3 to 6 and 4.5: one token through the gated delta rule of every value head.
void ReferenceBackend::delta_rule(std::span<float> state, std::span<float> channels, std::span<const float> a,
                                  std::span<const float> b, const RecurrentWeights& weights,
                                  std::span<float> out) const {
  constexpr std::int64_t kD = kLinearHeadDim;
  const std::int64_t key_dim = s_.linear_key_dim();
  const std::int64_t values_per_key = s_.linear_value_heads / s_.linear_key_heads;
  for (std::int64_t h = 0; h < s_.linear_key_heads; ++h) {
    l2_normalize(slice(channels, h * kD, kD));
    l2_normalize(slice(channels, key_dim + h * kD, kD));
    for (float& q : slice(channels, h * kD, kD)) q /= std::sqrt(static_cast<float>(kD));
  }
  for (std::int64_t hv = 0; hv < s_.linear_value_heads; ++hv) {
    const std::int64_t hk = hv / values_per_key;  // consecutive value heads share a key head
    const auto q = slice(channels, hk * kD, kD);
    const auto k = slice(channels, key_dim + hk * kD, kD);
    const auto v = slice(channels, 2 * key_dim + hv * kD, kD);
    const auto o = slice(out, hv * kD, kD);
    const auto head = static_cast<std::size_t>(hv);
    const float beta = sigmoid(b[head]);
    const float g = -std::exp(weights.A_log[head]) * softplus(a[head] + weights.dt_bias[head]);
    const float decay = std::exp(g);
    float* S = state.data() + hv * kD * kD;  // [Dk, Dv]

    std::array<float, kD> d{};  // beta (v - S^T k), with S decayed first
    for (std::int64_t dk = 0; dk < kD; ++dk) {
      for (std::int64_t dv = 0; dv < kD; ++dv) {
        S[dk * kD + dv] *= decay;
        d[static_cast<std::size_t>(dv)] += S[dk * kD + dv] * k[static_cast<std::size_t>(dk)];
      }
    }
    for (std::size_t dv = 0; dv < d.size(); ++dv) d[dv] = beta * (v[dv] - d[dv]);
    std::ranges::fill(o, 0.0F);  // S^T q of the updated state
    for (std::int64_t dk = 0; dk < kD; ++dk) {
      for (std::int64_t dv = 0; dv < kD; ++dv) {
        S[dk * kD + dv] += k[static_cast<std::size_t>(dk)] * d[static_cast<std::size_t>(dv)];
        o[static_cast<std::size_t>(dv)] += S[dk * kD + dv] * q[static_cast<std::size_t>(dk)];
      }
    }
  }
}

// 4.4
void ReferenceBackend::recurrent_block(const RecurrentBlock& block) {
  const RecurrentWeights& w = block.weights;
  const Rows h = rms_norm(residual_, w.input_layernorm, s_.rms_norm_eps);
  Rows qkv = linear(w.in_proj_qkv, h);
  const Rows z = linear(w.in_proj_z, h);
  const Rows a = linear(w.in_proj_a, h);
  const Rows b = linear(w.in_proj_b, h);
  Rows y(h.rows, s_.linear_value_dim());

  std::int64_t row = 0;
  for (const Segment& segment : batch_.segments) {
    const auto window = conv_window(segment.slot, block.linear_index);
    const auto state = recurrent_state(segment.slot, block.linear_index);
    for (std::int64_t i = 0; i < segment.rows(); ++i, ++row) {
      convolve(window, w.conv1d, qkv.row(row));
      delta_rule(state, qkv.row(row), a.row(row), b.row(row), w, y.row(row));
      for (std::int64_t hv = 0; hv < s_.linear_value_heads; ++hv) {  // gated norm: norm first, then the gate
        rms_norm_in_place(slice(y.row(row), hv * kLinearHeadDim, kLinearHeadDim), w.norm, s_.rms_norm_eps);
      }
      for (std::size_t c = 0; c < y.row(row).size(); ++c) y.row(row)[c] *= silu(z.row(row)[c]);
    }
  }
  add_to(residual_, linear(w.out_proj, y));
}

// 4.3 step 5: one query token over all K/V rows up to its own position. q is [Nq, D] after norm and RoPE.
void ReferenceBackend::attend(const Segment& segment, int attention_index, std::int64_t position,
                              std::span<const float> q, std::span<float> out) {
  const std::int64_t queries_per_kv = s_.query_heads / s_.kv_heads;
  const float scale = 1.0F / std::sqrt(static_cast<float>(kHeadDim));
  std::vector<float> p(static_cast<std::size_t>(position + 1));
  for (std::int64_t head = 0; head < s_.query_heads; ++head) {
    const std::int64_t kv = head / queries_per_kv;
    const auto query = slice(q, head * kHeadDim, kHeadDim);
    for (std::int64_t t = 0; t <= position; ++t) {
      const auto k = slice(kv_row(segment, attention_index, false, t), kv * kHeadDim, kHeadDim);
      p[static_cast<std::size_t>(t)] = dot(query, k) * scale;
    }
    softmax(p);
    const auto o = slice(out, head * kHeadDim, kHeadDim);
    std::ranges::fill(o, 0.0F);
    for (std::int64_t t = 0; t <= position; ++t) {
      const auto v = slice(kv_row(segment, attention_index, true, t), kv * kHeadDim, kHeadDim);
      for (std::size_t d = 0; d < v.size(); ++d) o[d] += p[static_cast<std::size_t>(t)] * v[d];
    }
  }
}

// 4.3
void ReferenceBackend::attention_block(const AttentionBlock& block) {
  const AttentionWeights& w = block.weights;
  const Rows h = rms_norm(residual_, w.input_layernorm, s_.rms_norm_eps);
  const Rows qg = linear(w.q_proj, h);  // per head: D query rows, then D gate rows
  const Rows k = linear(w.k_proj, h);
  const Rows v = linear(w.v_proj, h);
  Rows o(h.rows, s_.query_dim());
  std::vector<float> q(static_cast<std::size_t>(s_.query_dim()));

  std::int64_t row = 0;
  for (const Segment& segment : batch_.segments) {
    for (std::int64_t i = 0; i < segment.rows(); ++i, ++row) {
      const std::int64_t position = segment.position + i;
      for (std::int64_t head = 0; head < s_.query_heads; ++head) {
        const auto query = slice(std::span(q), head * kHeadDim, kHeadDim);
        std::ranges::copy(slice(qg.row(row), head * 2 * kHeadDim, kHeadDim), query.begin());
        rms_norm_in_place(query, w.q_norm, s_.rms_norm_eps);
        rope(query, position, s_.rope_theta);
      }
      const auto key = kv_row(segment, block.attention_index, false, position);
      std::ranges::copy(k.row(row), key.begin());
      for (std::int64_t head = 0; head < s_.kv_heads; ++head) {
        rms_norm_in_place(slice(key, head * kHeadDim, kHeadDim), w.k_norm, s_.rms_norm_eps);
        rope(slice(key, head * kHeadDim, kHeadDim), position, s_.rope_theta);
      }
      std::ranges::copy(v.row(row), kv_row(segment, block.attention_index, true, position).begin());

      attend(segment, block.attention_index, position, q, o.row(row));
      for (std::int64_t head = 0; head < s_.query_heads; ++head) {
        const auto gate = slice(qg.row(row), (head * 2 + 1) * kHeadDim, kHeadDim);
        const auto out = slice(o.row(row), head * kHeadDim, kHeadDim);
        for (std::size_t d = 0; d < out.size(); ++d) out[d] *= sigmoid(gate[d]);
      }
    }
  }
  add_to(residual_, linear(w.o_proj, o));
}

// 4.7
void ReferenceBackend::moe_block(const MoeBlock& block) {
  const MoeWeights& w = block.weights;
  const Rows h = rms_norm(residual_, w.post_attention_layernorm, s_.rms_norm_eps);
  Rows router = linear(w.gate, h);
  const Rows shared_gate = linear(w.shared_expert_gate, h);
  const Rows shared = swiglu(w.shared_gate_proj, w.shared_up_proj, w.shared_down_proj, h);

  for (std::int64_t t = 0; t < h.rows; ++t) {
    softmax(router.row(t));
    const auto chosen = top_k(router.row(t), s_.experts_per_token);
    float total = 0;
    for (const std::int64_t e : chosen) total += router.row(t)[static_cast<std::size_t>(e)];

    const auto x = residual_.row(t);
    const Rows token = single_row(h.row(t));
    for (const std::int64_t e : chosen) {
      const Rows y = swiglu(w.gate_proj, w.up_proj, w.down_proj, token, e);
      const float weight = router.row(t)[static_cast<std::size_t>(e)] / total;
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += weight * y.data[i];
    }
    const float share = sigmoid(shared_gate.row(t)[0]);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += share * shared.row(t)[i];
  }
}

// The feed-forward of the dense members, in place of 4.7.
void ReferenceBackend::mlp_block(const MlpBlock& block) {
  const MlpWeights& w = block.weights;
  const Rows h = rms_norm(residual_, w.post_attention_layernorm, s_.rms_norm_eps);
  add_to(residual_, swiglu(w.gate_proj, w.up_proj, w.down_proj, h));
}

// 4.8
void ReferenceBackend::head(const HeadBlock& block) {
  Rows wanted(batch_.logits_rows(), s_.hidden);
  std::int64_t row = 0;
  std::int64_t out = 0;
  for (const Segment& segment : batch_.segments) {
    for (std::int64_t i = 0; i < segment.rows(); ++i, ++row) {
      const bool is_last = i + 1 == segment.rows();
      if (segment.logits == Logits::kAll || (segment.logits == Logits::kLast && is_last)) {
        std::ranges::copy(residual_.row(row), wanted.row(out++).begin());
      }
    }
  }
  if (out == 0) return;
  const Rows logits = linear(block.lm_head, rms_norm(wanted, block.norm, s_.rms_norm_eps));
  std::ranges::copy(logits.data, block.logits.begin());
}

}  // namespace lily::reference
