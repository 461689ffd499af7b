// The dimension alphabet. Inner sizes are constants of the family; outer sizes are data from config.json.
//
//   T  tokens of a step            H  hidden_size               V  vocab_size
//   Nq query heads                 Nkv key/value heads          D  head_dim (256)
//   Hk linear key heads            Hv linear value heads        Dk, Dv linear head dims (128)
//   C  conv channels = 2 Hk Dk + Hv Dv                          E, K experts, experts per token
//   I  moe_intermediate_size       S  shared_expert_intermediate_size
//   F  intermediate_size of a dense member, whose E, K, I and S are 0
#pragma once

#include <cstdint>

#include "checkpoint/config.h"

namespace lily {

inline constexpr std::int64_t kHeadDim = 256;
inline constexpr std::int64_t kRotaryDim = 64;
inline constexpr std::int64_t kLinearHeadDim = 128;
inline constexpr std::int64_t kConvKernel = 4;
inline constexpr std::int64_t kConvHistory = kConvKernel - 1;  ///< pre-convolution rows a sequence keeps
/// KV rows live in pages of this many tokens, each covering every full-attention layer.
inline constexpr std::int64_t kKvPageTokens = 256;
/// Prefill is cut at multiples of this absolute position, so that equal prompts are cut equally.
inline constexpr std::int64_t kPrefillGrid = 64;

struct Shapes {
  std::int64_t hidden = 0;  ///< H
  std::int64_t vocab = 0;   ///< V
  std::int64_t layers = 0;
  std::int64_t linear_layers = 0;       ///< how many layers are gated delta
  std::int64_t attention_layers = 0;    ///< how many layers are full attention
  std::int64_t query_heads = 0;         ///< Nq
  std::int64_t kv_heads = 0;            ///< Nkv
  std::int64_t linear_key_heads = 0;    ///< Hk
  std::int64_t linear_value_heads = 0;  ///< Hv
  std::int64_t experts = 0;             ///< E
  std::int64_t experts_per_token = 0;   ///< K
  std::int64_t expert_width = 0;        ///< I
  std::int64_t shared_width = 0;        ///< S
  std::int64_t dense_width = 0;         ///< F
  float rms_norm_eps = 0;
  double rope_theta = 0;

  [[nodiscard]] std::int64_t query_dim() const { return query_heads * kHeadDim; }
  [[nodiscard]] std::int64_t kv_dim() const { return kv_heads * kHeadDim; }
  [[nodiscard]] std::int64_t linear_key_dim() const { return linear_key_heads * kLinearHeadDim; }
  [[nodiscard]] std::int64_t linear_value_dim() const { return linear_value_heads * kLinearHeadDim; }
  [[nodiscard]] std::int64_t conv_channels() const {
    return 2 * linear_key_dim() + linear_value_dim();
  }  ///< C
  /// Floats of one layer's recurrent state, [Hv, Dk, Dv].
  [[nodiscard]] std::int64_t recurrent_state_size() const {
    return linear_value_heads * kLinearHeadDim * kLinearHeadDim;
  }

  /// Floats of a recurrent slot: state and convolution window of every gated-delta layer.
  [[nodiscard]] std::int64_t slot_size() const {
    return linear_layers * (recurrent_state_size() + kConvHistory * conv_channels());
  }
  /// Numbers in a KV page: K and V rows of every full-attention layer.
  [[nodiscard]] std::int64_t page_size() const { return attention_layers * 2 * kKvPageTokens * kv_dim(); }

  static Shapes of(const ModelConfig& config);
};

}  // namespace lily
