// The shapes that `synth` makes checkpoints of, and the config.json of each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/config.h"

namespace lily {

/// Outer sizes of one model of the family; names are config.json's keys.
struct SynthPreset {
  std::string_view name;
  std::string_view description;
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t linear_num_key_heads = 0;
  std::int64_t linear_num_value_heads = 0;
  std::int64_t num_experts = 0;
  std::int64_t num_experts_per_tok = 0;
  std::int64_t moe_intermediate_size = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t intermediate_size = 0;  ///< of a dense member, which has no experts
  bool tie_word_embeddings = false;
  /// Bytes of tensors this engine has no use for (the vision tower) that the published first shard begins
  /// with. They are not written, but shards are cut as if they were.
  std::int64_t omitted_bytes = 0;
};

[[nodiscard]] const std::vector<SynthPreset>& synth_presets();

/// kInvalidArgument lists the names there are.
Result<SynthPreset> find_synth_preset(std::string_view name);

/// config.json with the published file's keys, order and indentation. Routers have 8 bits whatever `spec`
/// says, as published.
[[nodiscard]] std::string synth_config_json(const SynthPreset& preset, const QuantizationSpec& spec = {});
[[nodiscard]] std::string synth_generation_config_json(const SynthPreset& preset);

}  // namespace lily
