#include "model/shapes.h"

#include <algorithm>

namespace lily {

Shapes Shapes::of(const ModelConfig& config) {
  Shapes s;
  s.hidden = config.hidden_size;
  s.vocab = config.vocab_size;
  s.layers = config.num_hidden_layers;
  s.linear_layers = std::ranges::count(config.layer_types, LayerType::kLinearAttention);
  s.attention_layers = s.layers - s.linear_layers;
  s.query_heads = config.num_attention_heads;
  s.kv_heads = config.num_key_value_heads;
  s.linear_key_heads = config.linear_num_key_heads;
  s.linear_value_heads = config.linear_num_value_heads;
  s.experts = config.num_experts;
  s.experts_per_token = config.num_experts_per_tok;
  s.expert_width = config.moe_intermediate_size;
  s.shared_width = config.shared_expert_intermediate_size;
  s.dense_width = config.intermediate_size;
  s.rms_norm_eps = config.rms_norm_eps;
  s.rope_theta = config.rope_theta;
  return s;
}

}  // namespace lily
