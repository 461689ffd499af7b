#include "checkpoint/synth_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/report.h"

namespace lily {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kFullAttentionInterval = 4;
constexpr std::int64_t kPublishedVocabulary = 248320;

// Stop ids, the one of a chat turn first. A vocabulary too small for the published ones uses its own.
std::vector<std::int64_t> eos_ids(const SynthPreset& preset) {
  if (preset.vocab_size == kPublishedVocabulary) return {248046, 248044};
  return {2};
}

ordered_json layer_types(const SynthPreset& preset) {
  ordered_json types = ordered_json::array();
  for (std::int64_t i = 1; i <= preset.num_hidden_layers; ++i) {
    types.push_back(i % kFullAttentionInterval == 0 ? "full_attention" : "linear_attention");
  }
  return types;
}

ordered_json quantization(const SynthPreset& preset, const QuantizationSpec& spec) {
  ordered_json block = {{"group_size", spec.group_size}, {"bits", spec.bits}, {"mode", "affine"}};
  if (preset.num_experts == 0) return block;
  for (std::int64_t i = 0; i < preset.num_hidden_layers; ++i) {
    for (const char* module : {"gate", "shared_expert_gate"}) {
      block[fmt::format("language_model.model.layers.{}.mlp.{}", i, module)] = {{"group_size", 64},
                                                                                {"bits", 8}};
    }
  }
  return block;
}

ordered_json rope_parameters() {
  return {{"mrope_interleaved", true},
          {"mrope_section", {11, 11, 10}},
          {"partial_rotary_factor", 0.25},
          {"rope_theta", 10000000},
          {"rope_type", "default"}};
}

// The name that the type, and the type of a part, are made of.
std::string model_type(const SynthPreset& p) {
  return p.num_experts > 0 ? "qwen3_5_moe" : "qwen3_5";
}

// Sorted by key, as published.
nlohmann::json text_config(const SynthPreset& p) {
  nlohmann::json config = {{"attention_bias", false},
                           {"attention_dropout", 0.0},
                           {"attn_output_gate", true},
                           {"bos_token_id", eos_ids(p).back()},
                           {"dtype", "bfloat16"},
                           {"eos_token_id", eos_ids(p).back()},
                           {"full_attention_interval", kFullAttentionInterval},
                           {"head_dim", 256},
                           {"hidden_act", "silu"},
                           {"hidden_size", p.hidden_size},
                           {"initializer_range", 0.02},
                           {"layer_types", layer_types(p)},
                           {"linear_conv_kernel_dim", 4},
                           {"linear_key_head_dim", 128},
                           {"linear_num_key_heads", p.linear_num_key_heads},
                           {"linear_num_value_heads", p.linear_num_value_heads},
                           {"linear_value_head_dim", 128},
                           {"mamba_ssm_dtype", "float32"},
                           {"max_position_embeddings", p.max_position_embeddings},
                           {"model_type", model_type(p) + "_text"},
                           {"mtp_num_hidden_layers", 1},
                           {"mtp_use_dedicated_embeddings", false},
                           {"num_attention_heads", p.num_attention_heads},
                           {"num_hidden_layers", p.num_hidden_layers},
                           {"num_key_value_heads", p.num_key_value_heads},
                           {"pad_token_id", nullptr},
                           {"partial_rotary_factor", 0.25},
                           {"rms_norm_eps", 1e-6},
                           {"rope_parameters", rope_parameters()},
                           {"tie_word_embeddings", p.tie_word_embeddings},
                           {"use_cache", true},
                           {"vocab_size", p.vocab_size}};
  if (p.num_experts == 0) {
    config["intermediate_size"] = p.intermediate_size;
    return config;
  }
  config["moe_intermediate_size"] = p.moe_intermediate_size;
  config["num_experts"] = p.num_experts;
  config["num_experts_per_tok"] = p.num_experts_per_tok;
  config["output_router_logits"] = false;
  config["router_aux_loss_coef"] = 0.001;
  config["shared_expert_intermediate_size"] = p.moe_intermediate_size;
  return config;
}

ordered_json vision_config(const SynthPreset& p) {
  return {{"deepstack_visual_indexes", ordered_json::array()},
          {"depth", 27},
          {"hidden_act", "gelu_pytorch_tanh"},
          {"hidden_size", 1152},
          {"in_channels", 3},
          {"initializer_range", 0.02},
          {"intermediate_size", 4304},
          {"model_type", model_type(p)},
          {"num_heads", 16},
          {"num_position_embeddings", 2304},
          {"out_hidden_size", p.hidden_size},
          {"patch_size", 16},
          {"spatial_merge_size", 2},
          {"temporal_patch_size", 2}};
}

}  // namespace

const std::vector<SynthPreset>& synth_presets() {
  static const std::vector<SynthPreset> presets = {
      {.name = "qwen3.6-35b-a3b",
       .description = "the published shapes, 40 layers, 19.5 GB",
       .vocab_size = kPublishedVocabulary,
       .hidden_size = 2048,
       .num_hidden_layers = 40,
       .num_attention_heads = 16,
       .num_key_value_heads = 2,
       .linear_num_key_heads = 16,
       .linear_num_value_heads = 32,
       .num_experts = 256,
       .num_experts_per_tok = 8,
       .moe_intermediate_size = 512,
       .max_position_embeddings = 262144,
       .omitted_bytes = 893142496},
      {.name = "35b-4layers",
       .description = "the published widths, 4 layers, a vocabulary of 4096, 1.9 GB",
       .vocab_size = 4096,
       .hidden_size = 2048,
       .num_hidden_layers = 4,
       .num_attention_heads = 16,
       .num_key_value_heads = 2,
       .linear_num_key_heads = 16,
       .linear_num_value_heads = 32,
       .num_experts = 256,
       .num_experts_per_tok = 8,
       .moe_intermediate_size = 512,
       .max_position_embeddings = 262144},
      {.name = "small",
       .description = "8 narrow layers, a vocabulary of 1024, 7 MB",
       .vocab_size = 1024,
       .hidden_size = 256,
       .num_hidden_layers = 8,
       .num_attention_heads = 4,
       .num_key_value_heads = 1,
       .linear_num_key_heads = 2,
       .linear_num_value_heads = 4,
       .num_experts = 16,
       .num_experts_per_tok = 4,
       .moe_intermediate_size = 64,
       .max_position_embeddings = 4096},
      {.name = "qwen3.5-0.8b",
       .description = "the published dense shapes, 24 layers, tied head, 0.4 GB",
       .vocab_size = kPublishedVocabulary,
       .hidden_size = 1024,
       .num_hidden_layers = 24,
       .num_attention_heads = 8,
       .num_key_value_heads = 2,
       .linear_num_key_heads = 16,
       .linear_num_value_heads = 16,
       .max_position_embeddings = 262144,
       .intermediate_size = 3584,
       .tie_word_embeddings = true},
      {.name = "qwen3.5-4b",
       .description = "the published dense shapes, 32 layers, tied head, 2.4 GB",
       .vocab_size = kPublishedVocabulary,
       .hidden_size = 2560,
       .num_hidden_layers = 32,
       .num_attention_heads = 16,
       .num_key_value_heads = 4,
       .linear_num_key_heads = 16,
       .linear_num_value_heads = 32,
       .max_position_embeddings = 262144,
       .intermediate_size = 9216,
       .tie_word_embeddings = true},
      {.name = "qwen3.6-27b",
       .description = "the published dense shapes, 64 layers, 15 GB",
       .vocab_size = kPublishedVocabulary,
       .hidden_size = 5120,
       .num_hidden_layers = 64,
       .num_attention_heads = 24,
       .num_key_value_heads = 4,
       .linear_num_key_heads = 16,
       .linear_num_value_heads = 48,
       .max_position_embeddings = 262144,
       .intermediate_size = 17408},
      {.name = "small-dense",
       .description = "4 narrow dense layers, tied head, a vocabulary of 1024, 3 MB",
       .vocab_size = 1024,
       .hidden_size = 256,
       .num_hidden_layers = 4,
       .num_attention_heads = 4,
       .num_key_value_heads = 1,
       .linear_num_key_heads = 2,
       .linear_num_value_heads = 4,
       .max_position_embeddings = 4096,
       .intermediate_size = 384,
       .tie_word_embeddings = true},
  };
  return presets;
}

Result<SynthPreset> find_synth_preset(std::string_view name) {
  const auto& presets = synth_presets();
  const auto found = std::ranges::find(presets, name, &SynthPreset::name);
  if (found != presets.end()) return *found;
  std::vector<std::string> names;
  names.reserve(presets.size());
  for (const SynthPreset& preset : presets) names.emplace_back(preset.name);
  return fail(ErrorCode::kInvalidArgument, "preset \"{}\": expected one of {}", printable(name),
              list_names(names));
}

std::string synth_config_json(const SynthPreset& preset, const QuantizationSpec& spec) {
  const bool dense = preset.num_experts == 0;
  const char* architecture = dense ? "Qwen3_5ForConditionalGeneration" : "Qwen3_5MoeForConditionalGeneration";
  const ordered_json config = {{"architectures", {architecture}},
                               {"eos_token_id", eos_ids(preset)},
                               {"image_token_id", 248056},
                               {"model_type", model_type(preset)},
                               {"quantization", quantization(preset, spec)},
                               {"quantization_config", quantization(preset, spec)},
                               {"text_config", ordered_json(text_config(preset))},
                               {"tie_word_embeddings", preset.tie_word_embeddings},
                               {"transformers_version", "4.57.1"},
                               {"video_token_id", 248057},
                               {"vision_config", vision_config(preset)},
                               {"vision_end_token_id", 248054},
                               {"vision_start_token_id", 248053}};
  return config.dump(4);
}

std::string synth_generation_config_json(const SynthPreset& preset) {
  const ordered_json config = {{"bos_token_id", eos_ids(preset).back()},
                               {"do_sample", true},
                               {"eos_token_id", eos_ids(preset)},
                               {"pad_token_id", eos_ids(preset).back()},
                               {"temperature", 1.0},
                               {"top_k", 20},
                               {"top_p", 0.95}};
  return config.dump(4);
}

}  // namespace lily
