#include "checkpoint/layout.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "checkpoint/shards.h"

namespace lily {
namespace {

using nlohmann::ordered_json;

using Dims = std::vector<std::int64_t>;

// Emits tensors in the order in which the converter's module tree declares them.
class Layout {
 public:
  Layout(const ModelConfig& config, const Quantization& quantization)
      : c_(config), quantization_(quantization) {}

  std::vector<TensorPlan> build() {
    matrix("language_model.model.embed_tokens", {c_.vocab_size}, c_.hidden_size);
    for (std::int64_t i = 0; i < c_.num_hidden_layers; ++i) {
      layer(fmt::format("language_model.model.layers.{}.", i), c_.layer_types[static_cast<std::size_t>(i)]);
    }
    vector("language_model.model.norm.weight", {c_.hidden_size});
    if (!c_.tie_word_embeddings) matrix("language_model.lm_head", {c_.vocab_size}, c_.hidden_size);
    return std::move(tensors_);
  }

 private:
  void layer(const std::string& at, LayerType type) {
    if (type == LayerType::kLinearAttention) {
      recurrent(at + "linear_attn.");
    } else {
      attention(at + "self_attn.");
    }
    vector(at + "input_layernorm.weight", {c_.hidden_size});
    vector(at + "post_attention_layernorm.weight", {c_.hidden_size});
    if (c_.is_dense()) {
      dense(at + "mlp.");
    } else {
      moe(at + "mlp.");
    }
  }

  void recurrent(const std::string& at) {
    const std::int64_t heads = c_.linear_num_value_heads;
    const std::int64_t values = heads * c_.linear_value_head_dim;
    const std::int64_t channels = 2 * c_.linear_num_key_heads * c_.linear_key_head_dim + values;
    vector(at + "conv1d.weight", {channels, c_.linear_conv_kernel_dim, 1});
    matrix(at + "in_proj_qkv", {channels}, c_.hidden_size);
    matrix(at + "in_proj_z", {values}, c_.hidden_size);
    matrix(at + "in_proj_b", {heads}, c_.hidden_size);
    matrix(at + "in_proj_a", {heads}, c_.hidden_size);
    vector(at + "dt_bias", {heads});
    vector(at + "A_log", {heads});
    vector(at + "norm.weight", {c_.linear_value_head_dim});
    matrix(at + "out_proj", {c_.hidden_size}, values);
  }

  void attention(const std::string& at) {
    const std::int64_t queries = c_.num_attention_heads * c_.head_dim;
    const std::int64_t keys = c_.num_key_value_heads * c_.head_dim;
    matrix(at + "q_proj", {2 * queries}, c_.hidden_size);
    matrix(at + "k_proj", {keys}, c_.hidden_size);
    matrix(at + "v_proj", {keys}, c_.hidden_size);
    matrix(at + "o_proj", {c_.hidden_size}, queries);
    vector(at + "q_norm.weight", {c_.head_dim});
    vector(at + "k_norm.weight", {c_.head_dim});
  }

  void moe(const std::string& at) {
    const std::int64_t experts = c_.num_experts;
    matrix(at + "gate", {experts}, c_.hidden_size);
    matrix(at + "switch_mlp.gate_proj", {experts, c_.moe_intermediate_size}, c_.hidden_size);
    matrix(at + "switch_mlp.up_proj", {experts, c_.moe_intermediate_size}, c_.hidden_size);
    matrix(at + "switch_mlp.down_proj", {experts, c_.hidden_size}, c_.moe_intermediate_size);
    matrix(at + "shared_expert.gate_proj", {c_.shared_expert_intermediate_size}, c_.hidden_size);
    matrix(at + "shared_expert.down_proj", {c_.hidden_size}, c_.shared_expert_intermediate_size);
    matrix(at + "shared_expert.up_proj", {c_.shared_expert_intermediate_size}, c_.hidden_size);
    matrix(at + "shared_expert_gate", {1}, c_.hidden_size);
  }

  void dense(const std::string& at) {
    matrix(at + "gate_proj", {c_.intermediate_size}, c_.hidden_size);
    matrix(at + "down_proj", {c_.hidden_size}, c_.intermediate_size);
    matrix(at + "up_proj", {c_.intermediate_size}, c_.hidden_size);
  }

  void vector(const std::string& name, const Dims& shape) { tensors_.push_back({name, DType::kBF16, shape}); }

  void matrix(const std::string& module, const Dims& rows, std::int64_t in) {
    const QuantizationSpec& spec = quantization_.of(module);
    Dims weight = rows;
    weight.push_back(in * spec.bits / 32);
    Dims groups = rows;
    groups.push_back(in / spec.group_size);
    tensors_.push_back({module + ".weight", DType::kU32, weight});
    tensors_.push_back({module + ".scales", DType::kBF16, groups});
    tensors_.push_back({module + ".biases", DType::kBF16, groups});
  }

  const ModelConfig& c_;
  const Quantization& quantization_;
  std::vector<TensorPlan> tensors_;
};

}  // namespace

std::int64_t TensorPlan::bytes() const {
  auto count = static_cast<std::int64_t>(dtype_size(dtype));
  for (const std::int64_t dimension : shape) count *= dimension;
  return count;
}

std::vector<TensorPlan> published_layout(const ModelConfig& config) {
  LILY_CHECK(config.quantization.has_value(), "the published layout is quantized");
  return Layout(config, *config.quantization).build();
}

std::vector<ShardPlan> cut_into_shards(std::vector<TensorPlan> tensors, std::int64_t leading_bytes,
                                       std::int64_t shard_bytes) {
  std::vector<ShardPlan> shards(1);
  std::int64_t filled = leading_bytes;
  for (TensorPlan& tensor : tensors) {
    if (filled + tensor.bytes() > shard_bytes && !shards.back().empty()) {
      shards.emplace_back();
      filled = 0;
    }
    filled += tensor.bytes();
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

std::int64_t data_bytes(std::span<const ShardPlan> shards) {
  std::int64_t bytes = 0;
  for (const ShardPlan& shard : shards) {
    for (const TensorPlan& tensor : shard) bytes += tensor.bytes();
  }
  return bytes;
}

std::string safetensors_header(std::span<const TensorPlan> tensors) {
  ordered_json header;
  header["__metadata__"] = {{"format", "mlx"}};
  std::int64_t offset = 0;
  for (const TensorPlan& tensor : tensors) {
    header[tensor.name] = {{"dtype", dtype_name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.bytes()}}};
    offset += tensor.bytes();
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + text;
}

std::string shard_index(std::span<const ShardPlan> shards) {
  nlohmann::json weight_map;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    for (const TensorPlan& tensor : shards[i]) weight_map[tensor.name] = shard_name(i + 1, shards.size());
  }
  const nlohmann::json index = {{"metadata", {{"total_size", data_bytes(shards)}}},
                                {"weight_map", weight_map}};
  return index.dump(4);
}

}  // namespace lily
