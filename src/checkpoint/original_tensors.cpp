#include "checkpoint/original_tensors.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bf16.h"

namespace lily {
namespace {

using Dims = std::vector<std::int64_t>;

constexpr std::string_view kConvertedPrefix = "language_model.";
constexpr std::string_view kConvertedModel = "language_model.model.";

// Gains that the original keeps around 0. The gated norm of linear attention is not one of them.
bool is_zero_centred(std::string_view name) {
  for (const std::string_view suffix :
       {"input_layernorm.weight", "post_attention_layernorm.weight", "q_norm.weight", "k_norm.weight"}) {
    if (name.ends_with(suffix)) return true;
  }
  return name == "language_model.model.norm.weight";
}

float element(const TensorView& tensor, std::int64_t index) {
  const std::byte* p = tensor.data.data() + index * static_cast<std::int64_t>(dtype_size(tensor.dtype));
  switch (tensor.dtype) {
    case DType::kBF16:
      return bf16_to_f32(load_unaligned<std::uint16_t>(p));
    case DType::kF16:
      return f16_to_f32(load_unaligned<std::uint16_t>(p));
    default:
      return load_unaligned<float>(p);
  }
}

ConvertedTensor whole(TensorView tensor, std::int64_t columns) {
  const std::int64_t rows = tensor.elements() / columns;
  return {.parts = {{.tensor = std::move(tensor), .first = 0, .count = rows}}, .columns = columns};
}

}  // namespace

void read_row(const ConvertedTensor& tensor, std::int64_t row, std::span<float> out) {
  for (const TensorRows& part : tensor.parts) {
    if (row >= part.count) {
      row -= part.count;
      continue;
    }
    const std::int64_t begin = (part.first + row) * tensor.columns;
    for (std::int64_t c = 0; c < tensor.columns; ++c) {
      const float value = bf16_to_f32(f32_to_bf16(element(part.tensor, begin + c)));
      out[static_cast<std::size_t>(c)] = tensor.add_one ? bf16_to_f32(f32_to_bf16(value + 1.0F)) : value;
    }
    return;
  }
  LILY_CHECK(false, "row {} past the end", row);
}

Result<OriginalTensors> OriginalTensors::of(Checkpoint& checkpoint) {
  OriginalTensors original(checkpoint);
  if (checkpoint.config().quantization) {
    return fail(ErrorCode::kUnsupported, "config.json: quantization: expected none, the weights as trained");
  }
  for (const char* prefix : {"model.language_model.", "model."}) {
    if (checkpoint.contains(std::string(prefix) + "embed_tokens.weight")) original.prefix_ = prefix;
    if (!original.prefix_.empty()) break;
  }
  if (original.prefix_.empty()) {
    return fail(
        ErrorCode::kUnsupported,
        "expected the original tensors (model.language_model.embed_tokens.weight), found other names");
  }
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (!name.ends_with(".linear_attn.conv1d.weight") || is_unused_family(name)) continue;
    if (tensor.shape.size() == 3 && tensor.shape[2] == 1) {
      return fail(ErrorCode::kUnsupported,
                  "{}: {} is of a converted checkpoint, whose norms have their 1, expected [C, 1, {}]", name,
                  tensor.describe(), tensor.shape[1]);
    }
  }
  return original;
}

std::string OriginalTensors::original_name(const std::string& name) const {
  if (name.starts_with(kConvertedModel)) return prefix_ + name.substr(kConvertedModel.size());
  return name.substr(kConvertedPrefix.size());  // lm_head
}

Result<TensorView> OriginalTensors::take(const std::string& name, const Dims& shape) {
  LILY_TRY(TensorView tensor, checkpoint_.take(name));
  if (tensor.shape != shape) {
    return fail(ErrorCode::kCorrupt, "{}: expected shape [{}], found {}", name, fmt::join(shape, ", "),
                tensor.describe());
  }
  if (tensor.dtype != DType::kBF16 && tensor.dtype != DType::kF16 && tensor.dtype != DType::kF32) {
    return fail(ErrorCode::kUnsupported, "{}: expected BF16, F16 or F32, found {}", name, tensor.describe());
  }
  return tensor;
}

// Gate and up projections of an expert lie one above the other in gate_up_proj; other conversions keep every
// expert's matrices as tensors of their own.
Result<ConvertedTensor> OriginalTensors::experts(const std::string& mlp, const std::string& projection,
                                                 const Dims& shape) {
  const std::int64_t experts = shape[0];
  const std::int64_t rows = shape[1];
  const std::int64_t columns = shape[2];
  ConvertedTensor converted{.parts = {}, .columns = columns};
  if (checkpoint_.contains(mlp + "experts.gate_up_proj")) {
    const bool down = projection == "down_proj";
    const std::int64_t stored = down ? rows : 2 * rows;
    LILY_TRY(const TensorView tensor,
             take(mlp + (down ? "experts.down_proj" : "experts.gate_up_proj"), {experts, stored, columns}));
    const std::int64_t offset = projection == "up_proj" ? rows : 0;
    for (std::int64_t e = 0; e < experts; ++e) {
      converted.parts.push_back({.tensor = tensor, .first = e * stored + offset, .count = rows});
    }
    return converted;
  }
  for (std::int64_t e = 0; e < experts; ++e) {
    LILY_TRY(TensorView tensor,
             take(fmt::format("{}experts.{}.{}.weight", mlp, e, projection), {rows, columns}));
    converted.parts.push_back({.tensor = std::move(tensor), .first = 0, .count = rows});
  }
  return converted;
}

Result<ConvertedTensor> OriginalTensors::find(const std::string& name, const Dims& shape) {
  const std::string original = original_name(name);
  constexpr std::string_view kStacked = "switch_mlp.";
  if (const std::size_t at = original.find(kStacked); at != std::string::npos) {
    const std::size_t begin = at + kStacked.size();
    return experts(original.substr(0, at), original.substr(begin, original.find(".weight") - begin), shape);
  }
  Dims stored = shape;
  // [C, 1, 4] and [C, 4, 1] are the same numbers in the same order.
  const bool conv = name.ends_with("conv1d.weight");
  if (conv) std::swap(stored[1], stored[2]);
  LILY_TRY(TensorView tensor, take(original, stored));
  ConvertedTensor converted = whole(std::move(tensor), conv ? shape[1] : shape.back());
  converted.add_one = is_zero_centred(name);
  return converted;
}

}  // namespace lily
