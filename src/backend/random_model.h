// Small models of random weights, in memory: for tests, and for `lily selftest` on a machine where a backend
// never ran before.
#pragma once

#include <cmath>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "base/bf16.h"
#include "base/types.h"
#include "model/weights.h"

namespace lily {

/// A matrix whose bytes start at an odd address, as in a real shard, with codes and scales of every size and
/// sign.
class RandomMatrix {
 public:
  RandomMatrix(std::int64_t experts, std::int64_t out, std::int64_t in, int bits, std::uint32_t seed,
               float size = 1.0F, int group_size = 64)
      : bytes_(1) {
    matrix_ = {.experts = experts,
               .out = out,
               .in = in,
               .bits = bits,
               .group_size = group_size,
               .weight = nullptr,
               .scales = nullptr,
               .biases = nullptr};
    std::mt19937 random(seed);
    const auto codes = experts * out * matrix_.row_bytes();
    const auto groups = experts * out * matrix_.groups();
    bytes_.reserve(static_cast<std::size_t>(1 + codes + 4 * groups));
    for (std::int64_t i = 0; i < codes; ++i) bytes_.push_back(static_cast<std::byte>(random() & 0xffU));
    std::uniform_real_distribution<float> spread(0.3F, 1.0F);
    // Codes centred on zero, with weights of about size / sqrt(in): products stay near `size`.
    const auto levels = static_cast<float>((1 << bits) - 1);
    const float scale = size * 3.5F / (levels * std::sqrt(static_cast<float>(in)));
    std::vector<float> scales;
    scales.reserve(static_cast<std::size_t>(groups));
    for (std::int64_t i = 0; i < groups; ++i)
      scales.push_back(scale * spread(random) * (random() % 2 == 0 ? 1.0F : -1.0F));
    for (const float s : scales) push(s);
    for (const float s : scales) push(-s * levels * (0.4F + 0.2F * spread(random)));
  }

  /// Views into this object's bytes.
  [[nodiscard]] QuantizedMatrix view() const {
    QuantizedMatrix m = matrix_;
    m.weight = bytes_.data() + 1;
    m.scales = m.weight + m.experts * m.out * m.row_bytes();
    m.biases = m.scales + m.experts * m.out * m.groups() * 2;
    return m;
  }

  /// Row `row` of expert `expert` in f32, by the definition of the format.
  [[nodiscard]] std::vector<float> row(std::int64_t expert, std::int64_t row) const {
    const QuantizedMatrix m = view();
    const std::int64_t index = expert * m.out + row;
    std::vector<float> w(static_cast<std::size_t>(m.in));
    for (std::int64_t c = 0; c < m.in; ++c) {
      unsigned code = 0;  // bit by bit: a row is a stream of them
      for (std::int64_t b = 0; b < m.bits; ++b) {
        const std::int64_t bit = c * m.bits + b;
        const auto byte = static_cast<unsigned>(m.weight[index * m.row_bytes() + bit / 8]);
        code |= ((byte >> (bit % 8)) & 1U) << b;
      }
      const std::int64_t group = index * m.groups() + c / m.group_size;
      const float scale = bf16_to_f32(load_unaligned<std::uint16_t>(m.scales + group * 2));
      const float bias = bf16_to_f32(load_unaligned<std::uint16_t>(m.biases + group * 2));
      w[static_cast<std::size_t>(c)] = scale * static_cast<float>(code) + bias;
    }
    return w;
  }

 private:
  void push(float value) {
    const std::uint16_t bits = f32_to_bf16(value);
    bytes_.push_back(static_cast<std::byte>(bits & 0xffU));
    bytes_.push_back(static_cast<std::byte>(bits >> 8));
  }

  std::vector<std::byte> bytes_;
  QuantizedMatrix matrix_;
};

inline std::vector<float> random_floats(std::int64_t n, std::uint32_t seed, float deviation = 1.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, deviation);
  std::vector<float> x(static_cast<std::size_t>(n));
  for (float& v : x) v = normal(random);
  return x;
}

inline std::vector<TokenId> random_tokens(std::int64_t n, std::int64_t vocab, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens;
  tokens.reserve(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i)
    tokens.push_back(static_cast<TokenId>(random() % static_cast<std::uint32_t>(vocab)));
  return tokens;
}

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

/// Sizes at which some backend has gone wrong: one query head, 1 to 8 of them a KV head, 1 to 4 value heads a
/// key head, widths that fill no tile, odd vocabularies, 4- and 8-bit matrices mixed.
[[nodiscard]] std::vector<ModelSize> odd_sizes();
/// Every width of published mixed quantisations (2, 3, 5 and 6 bits beside 4 and 8) and every group size.
[[nodiscard]] std::vector<ModelSize> mixed_sizes();
/// Dense feed-forwards.
[[nodiscard]] std::vector<ModelSize> dense_sizes();

}  // namespace lily
