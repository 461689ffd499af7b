// config.json of the Qwen3.5/3.6 family, validated. Field names are the file's keys.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace lily {

/// How one module's weights are packed: MLX affine, `group_size` consecutive inputs share a scale and a bias.
struct QuantizationSpec {
  int bits = 4;         ///< 2, 3, 4, 5, 6 or 8
  int group_size = 64;  ///< 32, 64 or 128
  friend bool operator==(const QuantizationSpec&, const QuantizationSpec&) = default;
};

/// The `quantization` object: a default, and overrides keyed by module path
/// ("language_model.model.layers.0.mlp.gate").
struct Quantization {
  QuantizationSpec defaults;
  std::map<std::string, QuantizationSpec, std::less<>> overrides;
  [[nodiscard]] const QuantizationSpec& of(std::string_view module) const;
};

enum class LayerType { kLinearAttention, kFullAttention };

/// `text_config` (or a text-only file's top level), with what the top level adds. All sizes are validated:
/// positive, consistent with each other, and small enough that no product of them overflows.
struct ModelConfig {
  std::string model_type;  ///< "qwen3_5_moe", or "qwen3_5" of the dense members
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t linear_num_key_heads = 0;
  std::int64_t linear_num_value_heads = 0;
  std::int64_t linear_key_head_dim = 0;
  std::int64_t linear_value_head_dim = 0;
  std::int64_t linear_conv_kernel_dim = 0;
  std::int64_t num_experts = 0;
  std::int64_t num_experts_per_tok = 0;
  std::int64_t moe_intermediate_size = 0;
  std::int64_t shared_expert_intermediate_size = 0;
  std::int64_t intermediate_size =
      0;  ///< of a dense member; the other four are 0 there, and this one elsewhere
  std::int64_t max_position_embeddings = 0;
  std::int64_t rotary_dim = 0;  ///< head_dim * partial_rotary_factor
  double rope_theta = 0;
  float rms_norm_eps = 0;
  bool tie_word_embeddings = false;
  std::vector<LayerType> layer_types;  ///< one a layer
  std::vector<TokenId> eos_token_ids;  ///< top level, then text_config; generation_config adds to it
  std::optional<Quantization>
      quantization;  ///< absent in an original (bf16) checkpoint, which only `quantize` reads

  [[nodiscard]] bool is_dense() const { return intermediate_size > 0; }
};

/// Parses and validates the text of a config.json. Errors name the offending key, what was expected and
/// found.
Result<ModelConfig> parse_config(std::string_view json_text);

}  // namespace lily
