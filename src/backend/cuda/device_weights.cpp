#include "backend/cuda/device_weights.h"

#include <algorithm>

namespace lily::cuda {
namespace {

int planes_of(const QuantizedMatrix& matrix) {
  return matrix.bits > 4 ? 2 : 1;
}
int round_up(std::int64_t value, int step) {
  return static_cast<int>((value + step - 1) / step * step);
}

}  // namespace

DeviceWeights::DeviceWeights(const ModelWeights& weights, Layout& layout) {
  const QuantizedMatrix& e = weights.embed_tokens;
  embedding = {.codes = layout.take<std::uint8_t>(e.out * e.row_bytes()),
               .scales = layout.take<std::uint16_t>(e.out * e.groups()),
               .biases = layout.take<std::uint16_t>(e.out * e.groups()),
               .bits = e.bits,
               .group_size = e.group_size};
  for (const LayerWeights& layer : weights.layers) {
    LayerOnDevice placed{};
    if (const auto* recurrent = std::get_if<RecurrentWeights>(&layer.mixer)) {
      placed.mixer = place(layout, *recurrent);
    } else {
      placed.mixer = place(layout, std::get<AttentionWeights>(layer.mixer));
    }
    if (const auto* moe = std::get_if<MoeWeights>(&layer.mlp)) {
      placed.mlp = place(layout, *moe);
    } else {
      placed.mlp = place(layout, std::get<MlpWeights>(layer.mlp));
    }
    layers.push_back(placed);
  }
  norm = place(layout, weights.norm);
  head = place(layout, {{&weights.lm_head}});
  head_channels = static_cast<int>(weights.lm_head.out);
}

Packed DeviceWeights::place(Layout& layout, const std::vector<Stacked>& stack, std::vector<int>* offsets) {
  const QuantizedMatrix& first = *stack.front().source;
  Packed packed;
  packed.groups = static_cast<int>(first.in / kGroup);
  packed.gated = stack.front().bank >= 0;
  std::vector<int> at;
  std::int64_t channels = 0;
  for (const Stacked& part : stack) {
    packed.planes = std::max(packed.planes, planes_of(*part.source));
    at.push_back(static_cast<int>(channels));
    channels += round_up(part.source->out, 2);  // a pair of rows shares words
  }
  // Gate and up of 16 columns are a pair.
  packed.channels = packed.gated ? 2 * round_up(first.out, 16) : round_up(channels, 32);
  packed.data = layout.take<std::uint8_t>(first.experts * packed.expert_bytes());
  for (std::size_t i = 0; i < stack.size(); ++i) {
    matrices_.push_back({.source = stack[i].source,
                         .target = packed,
                         .channel_offset = packed.gated ? 0 : at[i],
                         .bank = stack[i].bank});
  }
  if (offsets != nullptr) *offsets = at;
  return packed;
}

const float* DeviceWeights::place(Layout& layout, const Vector& vector) {
  auto* target = layout.take<float>(static_cast<std::int64_t>(vector.size()));
  vectors_.push_back({&vector, target});
  return target;
}

RecurrentOnDevice DeviceWeights::place(Layout& layout, const RecurrentWeights& w) {
  RecurrentOnDevice placed{};
  std::vector<int> at;
  placed.input_norm = place(layout, w.input_layernorm);
  placed.in_proj = place(layout, {{&w.in_proj_qkv}, {&w.in_proj_z}, {&w.in_proj_b}, {&w.in_proj_a}}, &at);
  placed.z_offset = at[1];
  placed.b_offset = at[2];
  placed.a_offset = at[3];
  placed.taps = place(layout, w.conv1d);
  placed.A_log = place(layout, w.A_log);
  placed.dt_bias = place(layout, w.dt_bias);
  placed.norm = place(layout, w.norm);
  placed.out_proj = place(layout, {{&w.out_proj}});
  return placed;
}

AttentionOnDevice DeviceWeights::place(Layout& layout, const AttentionWeights& w) {
  AttentionOnDevice placed{};
  placed.input_norm = place(layout, w.input_layernorm);
  placed.in_proj = place(layout, {{&w.q_proj}, {&w.k_proj}, {&w.v_proj}});
  placed.q_norm = place(layout, w.q_norm);
  placed.k_norm = place(layout, w.k_norm);
  placed.out_proj = place(layout, {{&w.o_proj}});
  return placed;
}

MoeOnDevice DeviceWeights::place(Layout& layout, const MoeWeights& w) {
  MoeOnDevice placed{};
  std::vector<int> at;
  placed.norm = place(layout, w.post_attention_layernorm);
  placed.router = place(layout, {{&w.gate}, {&w.shared_expert_gate}}, &at);
  placed.shared_gate = at[1];
  placed.experts_in = place(layout, {{&w.gate_proj, 0}, {&w.up_proj, 1}});
  placed.experts_out = place(layout, {{&w.down_proj}});
  placed.shared_in = place(layout, {{&w.shared_gate_proj, 0}, {&w.shared_up_proj, 1}});
  placed.shared_out = place(layout, {{&w.shared_down_proj}});
  return placed;
}

MlpOnDevice DeviceWeights::place(Layout& layout, const MlpWeights& w) {
  MlpOnDevice placed{};
  placed.norm = place(layout, w.post_attention_layernorm);
  placed.in = place(layout, {{&w.gate_proj, 0}, {&w.up_proj, 1}});
  placed.out = place(layout, {{&w.down_proj}});
  return placed;
}

Result<void> check_supported(const ModelWeights& weights) {
  const auto matrix = [](const char* name, const QuantizedMatrix& m) -> Result<void> {
    if (m.group_size % kGroup == 0) return {};
    return fail(ErrorCode::kUnsupported, "cuda: {} has {} bits in groups of {}, expected groups of {} or {}",
                name, m.bits, m.group_size, kGroup, 2 * kGroup);
  };
  LILY_TRY_VOID(matrix("embed_tokens", weights.embed_tokens));
  Layout measure;
  const DeviceWeights placed(weights, measure);
  for (const MatrixPart& part : placed.matrices()) LILY_TRY_VOID(matrix("a matrix", *part.source));
  const Shapes& s = weights.shapes;
  const auto limit = [](const char* what, std::int64_t value, std::int64_t most) -> Result<void> {
    if (value <= most) return {};
    return fail(ErrorCode::kUnsupported, "cuda: {} {}, at most {}", value, what, most);
  };
  LILY_TRY_VOID(
      limit("query heads a KV head", s.kv_heads > 0 ? s.query_heads / s.kv_heads : 0, kMaxQueryGroup));
  LILY_TRY_VOID(limit("experts", s.experts, kMaxExperts));
  LILY_TRY_VOID(limit("experts a token", s.experts_per_token, kMaxExpertsPerToken));
  // Steps of 64 inputs, in two planes at worst, that one output of the second matrices sums.
  LILY_TRY_VOID(limit("inputs of the chosen experts together",
                      s.experts_per_token * s.expert_width + s.shared_width, kMostContracted));
  return {};
}

}  // namespace lily::cuda
