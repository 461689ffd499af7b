// A small model of random weights, in memory, and a way to run tokens through a backend.
#pragma once

#include <cmath>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/forward.h"
#include "tests/backend/quantized_matrix.h"

namespace lily::testing {

struct ModelSize {
  std::int64_t hidden = 128;
  std::int64_t vocab = 150;
  std::vector<bool> attention = {false, true};  ///< one a layer
  std::int64_t query_heads = 4;
  std::int64_t kv_heads = 1;
  std::int64_t linear_key_heads = 1;
  std::int64_t linear_value_heads = 2;
  std::int64_t experts = 6;
  std::int64_t experts_per_token = 2;
  std::int64_t expert_width = 64;
  std::int64_t shared_width = 128;
  int bits = 4;
  int other_bits = 8;  ///< of the router and of every third matrix
  int group_size = 64;
  int other_group_size = 64;     ///< of the same
  std::int64_t dense_width = 0;  ///< above 0: a dense feed-forward and a tied head
};

class RandomModel {
 public:
  explicit RandomModel(const ModelSize& size) : size_(size) {
    Shapes& s = weights_.shapes;
    s.hidden = size.hidden;
    s.vocab = size.vocab;
    s.layers = static_cast<std::int64_t>(size.attention.size());
    s.query_heads = size.query_heads;
    s.kv_heads = size.kv_heads;
    s.linear_key_heads = size.linear_key_heads;
    s.linear_value_heads = size.linear_value_heads;
    if (size.dense_width > 0) {
      s.dense_width = size.dense_width;
    } else {
      s.experts = size.experts;
      s.experts_per_token = size.experts_per_token;
      s.expert_width = size.expert_width;
      s.shared_width = size.shared_width;
    }
    s.rms_norm_eps = 1e-6F;
    s.rope_theta = 1e7;
    weights_.embed_tokens = matrix(1, s.vocab, s.hidden, 8.0F);
    for (const bool attention : size.attention) {
      LayerWeights layer;
      if (attention) {
        layer.mixer = attention_weights();
        ++s.attention_layers;
      } else {
        layer.mixer = recurrent_weights();
        ++s.linear_layers;
      }
      if (size.dense_width > 0) {
        layer.mlp = mlp_weights();
      } else {
        layer.mlp = moe_weights();
      }
      weights_.layers.push_back(std::move(layer));
    }
    weights_.norm = gain(s.hidden);
    weights_.lm_head = size.dense_width > 0 ? weights_.embed_tokens : matrix(1, s.vocab, s.hidden, 3.0F);
  }
  [[nodiscard]] const ModelWeights& weights() const { return weights_; }

 private:
  QuantizedMatrix matrix(std::int64_t experts, std::int64_t out, std::int64_t in, float size = 1.0F) {
    const bool other = ++count_ % 3 == 0;
    matrices_.emplace_back(experts, out, in, other ? size_.other_bits : size_.bits,
                           static_cast<std::uint32_t>(count_), size,
                           other ? size_.other_group_size : size_.group_size);
    return matrices_.back().view();
  }
  Vector gain(std::int64_t n) {
    Vector v = random_floats(n, static_cast<std::uint32_t>(++count_), 0.2F);
    for (float& x : v) x += 1.0F;
    return v;
  }
  RecurrentWeights recurrent_weights() {
    const Shapes& s = weights_.shapes;
    RecurrentWeights w;
    w.input_layernorm = gain(s.hidden);
    w.in_proj_qkv = matrix(1, s.conv_channels(), s.hidden);
    w.in_proj_z = matrix(1, s.linear_value_dim(), s.hidden);
    w.in_proj_a = matrix(1, s.linear_value_heads, s.hidden);
    w.in_proj_b = matrix(1, s.linear_value_heads, s.hidden);
    w.conv1d = random_floats(s.conv_channels() * 4, static_cast<std::uint32_t>(++count_), 0.5F);
    w.A_log =
        Vector(static_cast<std::size_t>(s.linear_value_heads), -3.0F);  // slow decay: a lost state shows
    w.dt_bias = random_floats(s.linear_value_heads, static_cast<std::uint32_t>(++count_));
    w.norm = gain(kLinearHeadDim);
    w.out_proj = matrix(1, s.hidden, s.linear_value_dim());
    return w;
  }
  AttentionWeights attention_weights() {
    const Shapes& s = weights_.shapes;
    AttentionWeights w;
    w.input_layernorm = gain(s.hidden);
    w.q_proj = matrix(1, 2 * s.query_dim(), s.hidden);
    w.k_proj = matrix(1, s.kv_dim(), s.hidden);
    w.v_proj = matrix(1, s.kv_dim(), s.hidden);
    w.q_norm = gain(kHeadDim);
    w.k_norm = gain(kHeadDim);
    w.o_proj = matrix(1, s.hidden, s.query_dim());
    return w;
  }
  MoeWeights moe_weights() {
    const Shapes& s = weights_.shapes;
    MoeWeights w;
    w.post_attention_layernorm = gain(s.hidden);
    w.gate = matrix(1, s.experts, s.hidden, 3.0F);
    w.shared_expert_gate = matrix(1, 1, s.hidden);
    w.gate_proj = matrix(s.experts, s.expert_width, s.hidden);
    w.up_proj = matrix(s.experts, s.expert_width, s.hidden);
    w.down_proj = matrix(s.experts, s.hidden, s.expert_width);
    w.shared_gate_proj = matrix(1, s.shared_width, s.hidden);
    w.shared_up_proj = matrix(1, s.shared_width, s.hidden);
    w.shared_down_proj = matrix(1, s.hidden, s.shared_width);
    return w;
  }

  MlpWeights mlp_weights() {
    const Shapes& s = weights_.shapes;
    MlpWeights w;
    w.post_attention_layernorm = gain(s.hidden);
    w.gate_proj = matrix(1, s.dense_width, s.hidden);
    w.up_proj = matrix(1, s.dense_width, s.hidden);
    w.down_proj = matrix(1, s.hidden, s.dense_width);
    return w;
  }

  ModelSize size_;
  ModelWeights weights_;
  std::deque<RandomMatrix> matrices_;
  int count_ = 0;
};

/// A sequence's tokens, pages and slot.
struct Timeline {
  std::vector<PageId> pages;
  SlotId slot = 0;
  std::int64_t length = 0;

  /// A segment of one token decodes.
  [[nodiscard]] Segment extend(std::span<const TokenId> tokens, Logits logits) {
    return extend(tokens, logits, tokens.size() == 1 ? Phase::kDecode : Phase::kPrefill);
  }
  [[nodiscard]] Segment extend(std::span<const TokenId> tokens, Logits logits, Phase phase) {
    const Segment segment{
        .tokens = tokens, .position = length, .pages = pages, .slot = slot, .phase = phase, .logits = logits};
    length += static_cast<std::int64_t>(tokens.size());
    return segment;
  }
};

/// One step; returns its logits.
inline std::vector<float> run_step(Backend& backend, const ModelWeights& weights,
                                   std::vector<Segment> segments, const ResidualProbe& probe = {}) {
  Batch batch{.segments = std::move(segments)};
  std::vector<float> logits(static_cast<std::size_t>(batch.logits_rows() * weights.shapes.vocab));
  const auto result = forward(backend, weights, batch, logits, probe);
  LILY_CHECK(result.ok(), "{}", result.error().message);
  return logits;
}

inline std::vector<TokenId> random_tokens(std::int64_t n, std::int64_t vocab, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens;
  for (std::int64_t i = 0; i < n; ++i)
    tokens.push_back(static_cast<TokenId>(random() % static_cast<std::uint32_t>(vocab)));
  return tokens;
}

}  // namespace lily::testing
