#include "model/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>

#include "base/bf16.h"
#include "base/log.h"
#include "checkpoint/report.h"

namespace lily {
namespace {

using Dims = std::vector<std::int64_t>;

std::string show(const Dims& dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

Vector widen(const TensorView& tensor) {
  Vector values(static_cast<std::size_t>(tensor.elements()));
  const std::byte* p = tensor.data.data();
  for (float& value : values) {
    switch (tensor.dtype) {
      case DType::kBF16:
        value = bf16_to_f32(load_unaligned<std::uint16_t>(p));
        break;
      case DType::kF16:
        value = f16_to_f32(load_unaligned<std::uint16_t>(p));
        break;
      default:
        value = load_unaligned<float>(p);
        break;
    }
    p += dtype_size(tensor.dtype);
  }
  return values;
}

bool is_float(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32;
}

// The original layout has other names, and the convolution's two last axes exchanged.
bool is_unconverted(const Checkpoint& checkpoint) {
  return std::ranges::any_of(checkpoint.tensors(), [](const auto& item) {
    const auto& [name, tensor] = item;
    const bool conv = name.ends_with(".linear_attn.conv1d.weight") && !is_unused_family(name);
    return name.starts_with("model.language_model.") ||
           (conv && tensor.shape.size() == 3 && tensor.shape[1] == 1 && tensor.shape[2] == kConvKernel);
  });
}

// Takes tensors by name, and notes what is missing or wrong instead of stopping at it.
class Loader {
 public:
  Loader(Checkpoint& checkpoint, const Quantization& quantization, std::vector<Error>& problems)
      : checkpoint_(checkpoint),
        quantization_(quantization),
        problems_(problems),
        s_(Shapes::of(checkpoint.config())) {
    if (checkpoint.contains("model.embed_tokens.weight")) prefix_ = "";
  }

  ModelWeights load() {
    ModelWeights weights;
    weights.shapes = s_;
    weights.files = checkpoint_.shared_files();
    const std::string model = prefix_ + "model.";
    weights.embed_tokens = matrix(model + "embed_tokens", {s_.vocab}, s_.hidden);
    for (std::size_t i = 0; i < checkpoint_.config().layer_types.size(); ++i) {
      weights.layers.push_back(
          layer(fmt::format("{}layers.{}.", model, i), checkpoint_.config().layer_types[i]));
    }
    weights.norm = vector(model + "norm.weight", {s_.hidden});
    weights.lm_head = head(weights.embed_tokens);
    finish();
    return weights;
  }

 private:
  LayerWeights layer(const std::string& at, LayerType type) {
    LayerWeights layer;
    if (type == LayerType::kLinearAttention) {
      layer.mixer = recurrent(at);
    } else {
      layer.mixer = attention(at);
    }
    if (s_.dense_width > 0) {
      layer.mlp = dense(at);
    } else {
      layer.mlp = moe(at);
    }
    return layer;
  }

  RecurrentWeights recurrent(const std::string& at) {
    const std::string mixer = at + "linear_attn.";
    const std::int64_t values = s_.linear_value_dim();
    return {
        .input_layernorm = vector(at + "input_layernorm.weight", {s_.hidden}),
        .in_proj_qkv = matrix(mixer + "in_proj_qkv", {s_.conv_channels()}, s_.hidden),
        .in_proj_z = matrix(mixer + "in_proj_z", {values}, s_.hidden),
        .in_proj_a = matrix(mixer + "in_proj_a", {s_.linear_value_heads}, s_.hidden),
        .in_proj_b = matrix(mixer + "in_proj_b", {s_.linear_value_heads}, s_.hidden),
        .conv1d = vector(mixer + "conv1d.weight", {s_.conv_channels(), kConvKernel, 1}),
        .A_log = vector(mixer + "A_log", {s_.linear_value_heads}),
        .dt_bias = vector(mixer + "dt_bias", {s_.linear_value_heads}),
        .norm = vector(mixer + "norm.weight", {kLinearHeadDim}),
        .out_proj = matrix(mixer + "out_proj", {s_.hidden}, values),
    };
  }

  AttentionWeights attention(const std::string& at) {
    const std::string mixer = at + "self_attn.";
    return {
        .input_layernorm = vector(at + "input_layernorm.weight", {s_.hidden}),
        .q_proj = matrix(mixer + "q_proj", {2 * s_.query_dim()}, s_.hidden),
        .k_proj = matrix(mixer + "k_proj", {s_.kv_dim()}, s_.hidden),
        .v_proj = matrix(mixer + "v_proj", {s_.kv_dim()}, s_.hidden),
        .q_norm = vector(mixer + "q_norm.weight", {kHeadDim}),
        .k_norm = vector(mixer + "k_norm.weight", {kHeadDim}),
        .o_proj = matrix(mixer + "o_proj", {s_.hidden}, s_.query_dim()),
    };
  }

  MoeWeights moe(const std::string& at) {
    const std::string mlp = at + "mlp.";
    return {
        .post_attention_layernorm = vector(at + "post_attention_layernorm.weight", {s_.hidden}),
        .gate = matrix(mlp + "gate", {s_.experts}, s_.hidden),
        .shared_expert_gate = matrix(mlp + "shared_expert_gate", {1}, s_.hidden),
        .gate_proj = matrix(mlp + "switch_mlp.gate_proj", {s_.experts, s_.expert_width}, s_.hidden),
        .up_proj = matrix(mlp + "switch_mlp.up_proj", {s_.experts, s_.expert_width}, s_.hidden),
        .down_proj = matrix(mlp + "switch_mlp.down_proj", {s_.experts, s_.hidden}, s_.expert_width),
        .shared_gate_proj = matrix(mlp + "shared_expert.gate_proj", {s_.shared_width}, s_.hidden),
        .shared_up_proj = matrix(mlp + "shared_expert.up_proj", {s_.shared_width}, s_.hidden),
        .shared_down_proj = matrix(mlp + "shared_expert.down_proj", {s_.hidden}, s_.shared_width),
    };
  }

  MlpWeights dense(const std::string& at) {
    const std::string mlp = at + "mlp.";
    return {
        .post_attention_layernorm = vector(at + "post_attention_layernorm.weight", {s_.hidden}),
        .gate_proj = matrix(mlp + "gate_proj", {s_.dense_width}, s_.hidden),
        .up_proj = matrix(mlp + "up_proj", {s_.dense_width}, s_.hidden),
        .down_proj = matrix(mlp + "down_proj", {s_.hidden}, s_.dense_width),
    };
  }

  // A tied checkpoint needs no head; one that brings it all the same holds the embedding twice.
  QuantizedMatrix head(const QuantizedMatrix& embed_tokens) {
    const std::string module = prefix_ + "lm_head";
    if (!checkpoint_.config().tie_word_embeddings) return matrix(module, {s_.vocab}, s_.hidden);
    for (const char* part : {".weight", ".scales", ".biases"}) {
      if (checkpoint_.take(module + part).ok()) log::warn("{}{}: not used, the head is tied", module, part);
    }
    return embed_tokens;
  }

  std::optional<TensorView> take(const std::string& name) {
    auto tensor = checkpoint_.take(name);
    if (tensor.ok()) return std::move(tensor).value();
    missing_.push_back(name);
    return std::nullopt;
  }

  // The tensor, if it is there and of this shape.
  std::optional<TensorView> take(const std::string& name, const Dims& shape) {
    auto tensor = take(name);
    if (tensor && tensor->shape != shape) {
      problem("{}: expected shape {}, found {}", name, show(shape), tensor->describe());
      return std::nullopt;
    }
    return tensor;
  }

  Vector vector(const std::string& name, const Dims& shape) {
    const auto tensor = take(name, shape);
    if (!tensor) return {};
    if (!is_float(tensor->dtype)) {
      problem("{}: expected BF16, F16 or F32, found {}", name, tensor->describe());
      return {};
    }
    return widen(*tensor);
  }

  // `rows` is {out} or {experts, out}.
  QuantizedMatrix matrix(const std::string& module, const Dims& rows, std::int64_t in) {
    const QuantizationSpec& spec = quantization_.of(module);
    if (in % spec.group_size != 0) {
      problem("{}: {} inputs are no whole number of groups of {}", module, in, spec.group_size);
      return {};
    }
    Dims scales_shape = rows;
    scales_shape.push_back(in / spec.group_size);
    const auto weight = take(module + ".weight");
    const auto scales = take(module + ".scales", scales_shape);
    const auto biases = take(module + ".biases", scales_shape);
    if (!weight || !scales || !biases) return {};
    if (!check_codes(*weight, spec, rows, in) || !check_bf16(*scales) || !check_bf16(*biases)) return {};
    return {.experts = rows.size() == 2 ? rows[0] : 1,
            .out = rows.back(),
            .in = in,
            .bits = spec.bits,
            .group_size = spec.group_size,
            .weight = weight->data.data(),
            .scales = scales->data.data(),
            .biases = biases->data.data()};
  }

  // Packed codes: U32 [rows..., in * bits / 32]. The words a row holds say how many bits each code has.
  bool check_codes(const TensorView& weight, const QuantizationSpec& spec, const Dims& rows,
                   std::int64_t in) {
    if (weight.dtype != DType::kU32) {
      problem("{}: expected U32 (packed codes), found {}", weight.name, weight.describe());
      return false;
    }
    Dims expected = rows;
    expected.push_back(in * spec.bits / 32);
    if (weight.shape == expected) return true;
    const bool rows_match = weight.shape.size() == expected.size() &&
                            std::ranges::equal(rows, std::span(weight.shape).first(rows.size()));
    if (rows_match && weight.shape.back() % (in / 32) == 0 && weight.shape.back() > 0) {
      problem("{}: {} holds {} bits a weight, config.json says {}", weight.name, weight.describe(),
              32 * weight.shape.back() / in, spec.bits);
    } else {
      problem("{}: expected U32 {} ({} bits), found {}", weight.name, show(expected), spec.bits,
              weight.describe());
    }
    return false;
  }

  bool check_bf16(const TensorView& tensor) {
    if (tensor.dtype == DType::kBF16) return true;
    problem("{}: expected BF16, found {}", tensor.name, tensor.describe());
    return false;
  }

  template <class... Args>
  void problem(fmt::format_string<Args...> format, Args&&... args) {
    problems_.push_back(fail(ErrorCode::kCorrupt, format, std::forward<Args>(args)...));
  }

  void finish() {
    if (!missing_.empty()) {
      problems_.push_back(fail(ErrorCode::kNotFound, "{} of the model's tensors are missing: {}",
                               missing_.size(), list_names(missing_)));
    }
    if (auto left = checkpoint_.check_all_taken(); !left.ok()) problems_.push_back(std::move(left).error());
  }

  Checkpoint& checkpoint_;
  const Quantization& quantization_;
  std::vector<Error>& problems_;
  Shapes s_;
  std::string prefix_ = "language_model.";
  std::vector<std::string> missing_;
};

// What of a weight is counted.
struct Measure {
  std::int64_t (*matrix)(const QuantizedMatrix&);
  std::int64_t per_element;  // of a small vector
};
constexpr Measure kBytes = {[](const QuantizedMatrix& m) { return m.bytes(); }, 2};
constexpr Measure kParameters = {[](const QuantizedMatrix& m) { return m.experts * m.out * m.in; }, 1};

// Sums a measure over a model, part by part.
class Tally {
 public:
  explicit Tally(const Measure& measure) : measure_(measure) {}

  WeightParts count(const ModelWeights& model) {
    parts_.embedding = matrices({&model.embed_tokens});
    parts_.head = model.lm_head.weight == model.embed_tokens.weight ? 0 : matrices({&model.lm_head});
    parts_.norms = vectors({&model.norm});
    for (const LayerWeights& layer : model.layers) {
      std::visit([&](const auto& mixer) { add(mixer); }, layer.mixer);
      std::visit([&](const auto& mlp) { add(mlp); }, layer.mlp);
    }
    return parts_;
  }

 private:
  void add(const RecurrentWeights& w) {
    parts_.norms += vectors({&w.input_layernorm});
    parts_.recurrent_mixers +=
        matrices({&w.in_proj_qkv, &w.in_proj_z, &w.in_proj_a, &w.in_proj_b, &w.out_proj});
    parts_.recurrent_mixers += vectors({&w.conv1d, &w.A_log, &w.dt_bias, &w.norm});
  }

  void add(const AttentionWeights& w) {
    parts_.norms += vectors({&w.input_layernorm});
    parts_.attention_mixers += matrices({&w.q_proj, &w.k_proj, &w.v_proj, &w.o_proj});
    parts_.attention_mixers += vectors({&w.q_norm, &w.k_norm});
  }

  void add(const MoeWeights& w) {
    parts_.norms += vectors({&w.post_attention_layernorm});
    parts_.routers += matrices({&w.gate, &w.shared_expert_gate});
    parts_.experts += matrices({&w.gate_proj, &w.up_proj, &w.down_proj});
    parts_.shared_experts += matrices({&w.shared_gate_proj, &w.shared_up_proj, &w.shared_down_proj});
  }

  void add(const MlpWeights& w) {
    parts_.norms += vectors({&w.post_attention_layernorm});
    parts_.dense_mlps += matrices({&w.gate_proj, &w.up_proj, &w.down_proj});
  }

  [[nodiscard]] std::int64_t matrices(std::initializer_list<const QuantizedMatrix*> list) const {
    std::int64_t sum = 0;
    for (const QuantizedMatrix* matrix : list) sum += measure_.matrix(*matrix);
    return sum;
  }

  [[nodiscard]] std::int64_t vectors(std::initializer_list<const Vector*> list) const {
    std::int64_t elements = 0;
    for (const Vector* vector : list) elements += std::ssize(*vector);
    return measure_.per_element * elements;
  }

  const Measure& measure_;
  WeightParts parts_;
};

// The part of a model that one token meets.
WeightParts per_token(const ModelWeights& model, const Measure& measure) {
  WeightParts parts = Tally(measure).count(model);
  if (model.shapes.experts > 0) {
    parts.experts = parts.experts / model.shapes.experts * model.shapes.experts_per_token;
  }
  parts.head = measure.matrix(model.lm_head);
  return parts;
}

}  // namespace

std::int64_t WeightParts::total() const {
  return embedding + recurrent_mixers + attention_mixers + experts + shared_experts + routers + dense_mlps +
         norms + head;
}

WeightParts ModelWeights::stored_bytes() const {
  return Tally(kBytes).count(*this);
}
WeightParts ModelWeights::parameters() const {
  return Tally(kParameters).count(*this);
}

WeightParts ModelWeights::token_bytes() const {
  WeightParts parts = per_token(*this, kBytes);
  parts.embedding = embed_tokens.row_bytes() + 4 * embed_tokens.groups();
  return parts;
}

WeightParts ModelWeights::active_parameters() const {
  WeightParts parts = per_token(*this, kParameters);
  parts.embedding = 0;
  return parts;
}

ModelWeights load_weights_collecting(Checkpoint& checkpoint, std::vector<Error>& problems) {
  const std::optional<Quantization>& quantization = checkpoint.config().quantization;
  if (is_unconverted(checkpoint)) {
    problems.push_back(
        fail(ErrorCode::kUnsupported,
             "holds the original tensors (conv1d [C, 1, {}], other names), expected their MLX conversion",
             kConvKernel));
  } else if (!quantization) {
    problems.push_back(fail(ErrorCode::kUnsupported,
                            "config.json: quantization: missing, expected an MLX affine 4-bit checkpoint"));
  } else {
    return Loader(checkpoint, *quantization, problems).load();
  }
  return {};
}

Result<ModelWeights> load_weights(Checkpoint& checkpoint) {
  std::vector<Error> problems;
  ModelWeights weights = load_weights_collecting(checkpoint, problems);
  if (!problems.empty()) return combine(problems).in(checkpoint.files().label());
  return weights;
}

}  // namespace lily
