#include "checkpoint/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/json.h"
#include "checkpoint/report.h"

namespace lily {
namespace {

using nlohmann::json;

constexpr std::int64_t kRotaryDim = 64;

// Limits far above any member of the family, and low enough that no product of sizes leaves 63 bits.
struct SizeField {
  const char* key;
  std::int64_t ModelConfig::* field;
  std::int64_t limit;
};
constexpr std::array kSizes = {
    SizeField{"vocab_size", &ModelConfig::vocab_size, 1 << 24},
    SizeField{"hidden_size", &ModelConfig::hidden_size, 1 << 18},
    SizeField{"num_hidden_layers", &ModelConfig::num_hidden_layers, 1 << 10},
    SizeField{"num_attention_heads", &ModelConfig::num_attention_heads, 1 << 10},
    SizeField{"num_key_value_heads", &ModelConfig::num_key_value_heads, 1 << 10},
    SizeField{"linear_num_key_heads", &ModelConfig::linear_num_key_heads, 1 << 10},
    SizeField{"linear_num_value_heads", &ModelConfig::linear_num_value_heads, 1 << 10},
    SizeField{"max_position_embeddings", &ModelConfig::max_position_embeddings, 1 << 26},
};
constexpr std::array kMoeSizes = {
    SizeField{"num_experts", &ModelConfig::num_experts, 1 << 14},
    SizeField{"num_experts_per_tok", &ModelConfig::num_experts_per_tok, 1 << 14},
    SizeField{"moe_intermediate_size", &ModelConfig::moe_intermediate_size, 1 << 18},
    SizeField{"shared_expert_intermediate_size", &ModelConfig::shared_expert_intermediate_size, 1 << 18},
};
constexpr std::array kDenseSizes = {
    SizeField{"intermediate_size", &ModelConfig::intermediate_size, 1 << 18},
};
constexpr std::string_view kMoeType = "qwen3_5_moe";
constexpr std::string_view kDenseType = "qwen3_5";
// Kernels take inputs in blocks of so many, whatever the group size.
constexpr std::int64_t kInputBlock = 64;

// Compiled into the kernels: the same in every member of the family.
struct FixedField {
  const char* key;
  std::int64_t ModelConfig::* field;
  std::int64_t value;
};
constexpr std::array kFixed = {
    FixedField{"head_dim", &ModelConfig::head_dim, 256},
    FixedField{"linear_key_head_dim", &ModelConfig::linear_key_head_dim, 128},
    FixedField{"linear_value_head_dim", &ModelConfig::linear_value_head_dim, 128},
    FixedField{"linear_conv_kernel_dim", &ModelConfig::linear_conv_kernel_dim, 4},
};

// Architecture switches of which this engine implements one setting. Absent means that setting.
struct Switch {
  const char* key;
  const char* value;  // as JSON
};
constexpr std::array kSwitches = {
    Switch{"hidden_act", "\"silu\""}, Switch{"attention_bias", "false"}, Switch{"attn_output_gate", "true"},
    Switch{"norm_topk_prob", "true"}, Switch{"mlp_only_layers", "[]"},   Switch{"decoder_sparse_step", "1"},
};

std::string shown(const json& value) {
  return printable(value.dump(-1, ' ', true));
}

// One object of the file: `path` ("text_config.") goes in front of its keys in messages.
struct Section {
  const json& object;
  std::string path;

  [[nodiscard]] bool has(const char* key) const { return object.contains(key) && !object[key].is_null(); }
  [[nodiscard]] const json& operator[](const char* key) const { return object[key]; }

  template <class... Args>
  [[nodiscard]] Error bad(ErrorCode code, const char* key, fmt::format_string<Args...> what,
                          Args&&... args) const {
    return fail(code, "{}{}: {}", path, key, fmt::format(what, std::forward<Args>(args)...));
  }

  // A whole number from 1 to `limit`.
  [[nodiscard]] Result<std::int64_t> size(const char* key, std::int64_t limit) const {
    if (!has(key)) return bad(ErrorCode::kCorrupt, key, "missing");
    const json& value = object[key];
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() < 1 ||
        value.get<std::uint64_t>() > static_cast<std::uint64_t>(limit)) {
      return bad(ErrorCode::kCorrupt, key, "expected a whole number from 1 to {}, found {}", limit,
                 shown(value));
    }
    return value.get<std::int64_t>();
  }

  // A finite number above 0.
  [[nodiscard]] Result<double> positive(const char* key) const {
    if (!has(key)) return bad(ErrorCode::kCorrupt, key, "missing");
    const json& value = object[key];
    if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() <= 0) {
      return bad(ErrorCode::kCorrupt, key, "expected a number above 0, found {}", shown(value));
    }
    return value.get<double>();
  }
};

Result<Section> subsection(const Section& parent, const char* key) {
  if (!parent[key].is_object()) return parent.bad(ErrorCode::kCorrupt, key, "expected an object");
  return Section{parent[key], parent.path + key + "."};
}

// "qwen3_5_moe_text" and "qwen3_5_text" are the same types in a file without the vision part.
Result<std::string> read_model_type(const Section& root) {
  if (!root.has("model_type") || !root["model_type"].is_string()) {
    return root.bad(ErrorCode::kCorrupt, "model_type", "expected \"{}\" or \"{}\", found none", kMoeType,
                    kDenseType);
  }
  auto type = root["model_type"].get<std::string>();
  if (type.ends_with("_text")) type.resize(type.size() - std::string_view("_text").size());
  if (type == kMoeType || type == kDenseType) return type;
  return root.bad(ErrorCode::kUnsupported, "model_type", "expected \"{}\" or \"{}\", found {}", kMoeType,
                  kDenseType, shown(root["model_type"]));
}

Result<std::string> read_model_type(const Section& root, const Section& text) {
  LILY_TRY(std::string type, read_model_type(root));
  if (!text.has("model_type")) return type;
  LILY_TRY(const std::string text_type, read_model_type(text));
  if (text_type == type) return type;
  return text.bad(ErrorCode::kCorrupt, "model_type", "expected \"{}_text\", found {}", type,
                  shown(text["model_type"]));
}

Result<void> read_sizes(const Section& text, ModelConfig& config) {
  const auto read = [&](const SizeField& field) -> Result<void> {
    LILY_TRY(config.*field.field, text.size(field.key, field.limit));
    return {};
  };
  for (const SizeField& field : kSizes) LILY_TRY_VOID(read(field));
  if (config.model_type == kDenseType) {
    for (const SizeField& field : kDenseSizes) LILY_TRY_VOID(read(field));
  } else {
    for (const SizeField& field : kMoeSizes) LILY_TRY_VOID(read(field));
  }
  for (const FixedField& field : kFixed) {
    LILY_TRY(config.*field.field, text.size(field.key, 1 << 20));
    if (config.*field.field != field.value) {
      return text.bad(ErrorCode::kUnsupported, field.key, "expected {}, found {}", field.value,
                      config.*field.field);
    }
  }
  LILY_TRY(const double eps, text.positive("rms_norm_eps"));
  if (eps >= 1) return text.bad(ErrorCode::kCorrupt, "rms_norm_eps", "expected less than 1, found {}", eps);
  config.rms_norm_eps = static_cast<float>(eps);
  return {};
}

Result<void> check_switches(const Section& text) {
  for (const Switch& option : kSwitches) {
    if (text.has(option.key) && text[option.key] != json::parse(option.value)) {
      return text.bad(ErrorCode::kUnsupported, option.key, "expected {}, found {}", option.value,
                      shown(text[option.key]));
    }
  }
  return {};
}

Result<void> check_ratios(const Section& text, const ModelConfig& c) {
  if (c.num_attention_heads % c.num_key_value_heads != 0) {
    return text.bad(ErrorCode::kCorrupt, "num_attention_heads",
                    "{} is not a multiple of num_key_value_heads {}", c.num_attention_heads,
                    c.num_key_value_heads);
  }
  if (c.linear_num_value_heads % c.linear_num_key_heads != 0) {
    return text.bad(ErrorCode::kCorrupt, "linear_num_value_heads",
                    "{} is not a multiple of linear_num_key_heads {}", c.linear_num_value_heads,
                    c.linear_num_key_heads);
  }
  if (c.num_experts_per_tok > c.num_experts) {
    return text.bad(ErrorCode::kCorrupt, "num_experts_per_tok", "{} is more than num_experts {}",
                    c.num_experts_per_tok, c.num_experts);
  }
  return {};
}

Result<LayerType> parse_layer_type(const Section& text, const json& value) {
  if (value == "linear_attention") return LayerType::kLinearAttention;
  if (value == "full_attention") return LayerType::kFullAttention;
  return text.bad(ErrorCode::kUnsupported, "layer_types",
                  "expected \"linear_attention\" or \"full_attention\", found {}", shown(value));
}

Result<void> read_layer_types(const Section& text, ModelConfig& config) {
  const auto layers = static_cast<std::size_t>(config.num_hidden_layers);
  if (!text.has("layer_types")) {
    LILY_TRY(const std::int64_t interval, text.size("full_attention_interval", 1 << 10));
    for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
      config.layer_types.push_back((i + 1) % interval == 0 ? LayerType::kFullAttention
                                                           : LayerType::kLinearAttention);
    }
    return {};
  }
  const json& types = text["layer_types"];
  if (!types.is_array() || types.size() != layers) {
    return text.bad(ErrorCode::kCorrupt, "layer_types",
                    "expected a list of num_hidden_layers = {} entries, found {}", layers,
                    types.is_array() ? std::to_string(types.size()) : shown(types));
  }
  for (const json& type : types) {
    LILY_TRY(const LayerType parsed, parse_layer_type(text, type));
    config.layer_types.push_back(parsed);
  }
  return {};
}

// Only the plain rotary embedding; M-RoPE's sections do not matter for text, where all three positions are
// equal.
Result<void> check_rope_type(const Section& rope) {
  for (const char* key : {"rope_type", "type"}) {
    if (rope.has(key) && rope[key] != "default") {
      return rope.bad(ErrorCode::kUnsupported, key, "expected \"default\", found {}", shown(rope[key]));
    }
  }
  return {};
}

Result<void> check_rotary_fraction(const Section& rope, const ModelConfig& config) {
  LILY_TRY(const double fraction, rope.positive("partial_rotary_factor"));
  if (fraction * static_cast<double>(config.head_dim) != static_cast<double>(kRotaryDim)) {
    return rope.bad(ErrorCode::kUnsupported, "partial_rotary_factor", "expected {} of head_dim {}, found {}",
                    kRotaryDim, config.head_dim, fraction);
  }
  return {};
}

// Newer files keep the numbers in rope_parameters, older ones beside the sizes.
Result<void> read_rope(const Section& text, ModelConfig& config) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!text.has(key)) continue;
    LILY_TRY(const Section rope, subsection(text, key));
    LILY_TRY_VOID(check_rope_type(rope));
  }
  LILY_TRY(const Section rope,
           text.has("rope_parameters") ? subsection(text, "rope_parameters") : Result<Section>(text));
  LILY_TRY(config.rope_theta, rope.positive("rope_theta"));
  LILY_TRY_VOID(check_rotary_fraction(rope.has("partial_rotary_factor") ? rope : text, config));
  config.rotary_dim = kRotaryDim;
  return {};
}

Result<bool> read_tied(const Section& root, const Section& text) {
  constexpr auto kKey = "tie_word_embeddings";
  const Section& section = text.has(kKey) ? text : root;
  if (!section.has(kKey)) return false;
  if (!section[kKey].is_boolean()) {
    return section.bad(ErrorCode::kCorrupt, kKey, "expected true or false, found {}", shown(section[kKey]));
  }
  return section[kKey].get<bool>();
}

// One id or a list of them. An id outside the vocabulary can never be sampled: it is dropped.
Result<void> read_eos(const Section& section, ModelConfig& config) {
  constexpr auto kKey = "eos_token_id";
  if (!section.has(kKey)) return {};
  const json& value = section[kKey];
  const json ids = value.is_array() ? value : json::array({value});
  for (const json& id : ids) {
    if (!id.is_number_unsigned()) {
      return section.bad(ErrorCode::kCorrupt, kKey, "expected a token id or a list of them, found {}",
                         shown(value));
    }
    if (id.get<std::uint64_t>() >= static_cast<std::uint64_t>(config.vocab_size)) {
      log::warn("{}{}: {} is outside the vocabulary of {}, ignored", section.path, kKey,
                id.get<std::uint64_t>(), config.vocab_size);
      continue;
    }
    const auto token = id.get<TokenId>();
    if (std::ranges::count(config.eos_token_ids, token) == 0) config.eos_token_ids.push_back(token);
  }
  return {};
}

Result<int> read_choice(const Section& section, const char* key, std::initializer_list<int> supported) {
  LILY_TRY(const std::int64_t value, section.size(key, 1 << 20));
  if (std::ranges::count(supported, value) == 0) {
    return section.bad(ErrorCode::kUnsupported, key, "expected {}, found {}", fmt::join(supported, " or "),
                       value);
  }
  return static_cast<int>(value);
}

// `{group_size, bits, mode}`; an override may leave out what equals the default.
Result<QuantizationSpec> read_spec(const Section& section, const QuantizationSpec* defaults) {
  QuantizationSpec spec = defaults != nullptr ? *defaults : QuantizationSpec{};
  if (section.has("mode") && section["mode"] != "affine") {
    return section.bad(ErrorCode::kUnsupported, "mode", "expected \"affine\", found {}",
                       shown(section["mode"]));
  }
  if (defaults == nullptr || section.has("bits")) {
    LILY_TRY(spec.bits, read_choice(section, "bits", {2, 3, 4, 5, 6, 8}));
  }
  if (defaults == nullptr || section.has("group_size")) {
    LILY_TRY(spec.group_size, read_choice(section, "group_size", {32, 64, 128}));
  }
  return spec;
}

Result<void> read_override(const Section& section, const std::string& module, Quantization& quantization) {
  const json& value = section[module.c_str()];
  if (value.is_boolean() && !value.get<bool>()) {
    return section.bad(ErrorCode::kUnsupported, module.c_str(), "a module left unquantized is not supported");
  }
  if (!value.is_object()) return {};  // true: the default; anything else says nothing about a module
  LILY_TRY(const Section module_section, subsection(section, module.c_str()));
  LILY_TRY(quantization.overrides[module], read_spec(module_section, &quantization.defaults));
  return {};
}

Result<Quantization> read_quantization(const Section& section) {
  if (section.has("quant_method")) {
    return section.bad(ErrorCode::kUnsupported, "quant_method", "expected MLX affine quantization, found {}",
                       shown(section["quant_method"]));
  }
  Quantization quantization;
  LILY_TRY(quantization.defaults, read_spec(section, nullptr));
  for (const auto& [key, value] : section.object.items()) {
    if (is_unused_family(key)) continue;
    LILY_TRY_VOID(read_override(section, key, quantization));
  }
  return quantization;
}

// What the shapes of packed matrices need: whole groups, and whole blocks, along every input.
Result<void> check_groups(const Section& text, const ModelConfig& config, int group) {
  const std::int64_t unit = std::max<std::int64_t>(group, kInputBlock);
  const auto check = [&](const char* key, std::int64_t value) -> Result<void> {
    if (value % unit == 0) return {};
    return text.bad(ErrorCode::kUnsupported, key, "{} is not a multiple of {}, for quantization groups of {}",
                    value, unit, group);
  };
  LILY_TRY_VOID(check("hidden_size", config.hidden_size));
  LILY_TRY_VOID(check("intermediate_size", config.intermediate_size));
  LILY_TRY_VOID(check("moe_intermediate_size", config.moe_intermediate_size));
  return check("shared_expert_intermediate_size", config.shared_expert_intermediate_size);
}

Result<void> read_optional_quantization(const Section& root, const Section& text, ModelConfig& config) {
  for (const char* key : {"quantization", "quantization_config"}) {
    if (!root.has(key)) continue;
    LILY_TRY(const Section section, subsection(root, key));
    LILY_TRY(const Quantization quantization, read_quantization(section));
    config.quantization = quantization;
    return check_groups(text, config, quantization.defaults.group_size);
  }
  return {};
}

Result<ModelConfig> read_config(const json& file) {
  if (!file.is_object()) return fail(ErrorCode::kCorrupt, "expected a JSON object");
  const Section root{file, ""};
  LILY_TRY(const Section text,
           root.has("text_config") ? subsection(root, "text_config") : Result<Section>(root));
  ModelConfig config;
  LILY_TRY(config.model_type, read_model_type(root, text));
  LILY_TRY_VOID(read_sizes(text, config));
  LILY_TRY_VOID(check_switches(text));
  LILY_TRY_VOID(check_ratios(text, config));
  LILY_TRY_VOID(read_layer_types(text, config));
  LILY_TRY_VOID(read_rope(text, config));
  LILY_TRY(config.tie_word_embeddings, read_tied(root, text));
  LILY_TRY_VOID(read_eos(root, config));
  LILY_TRY_VOID(read_eos(text, config));
  LILY_TRY_VOID(read_optional_quantization(root, text, config));
  return config;
}

}  // namespace

const QuantizationSpec& Quantization::of(std::string_view module) const {
  const auto found = overrides.find(module);
  return found != overrides.end() ? found->second : defaults;
}

Result<ModelConfig> parse_config(std::string_view json_text) {
  LILY_TRY(const json file, parse_json(json_text, {}));
  return read_config(file);
}

}  // namespace lily
