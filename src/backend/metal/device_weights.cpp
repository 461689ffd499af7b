#include "backend/metal/device_weights.h"

#include "backend/metal/kernels/kernels.h"

namespace lily::metal {

DeviceWeights::DeviceWeights(const ModelWeights& weights, Arena& arena)
    : group_size_(has_small_groups(weights) ? kGroup / 2 : kGroup) {
  embedding = place(arena, weights.embed_tokens);
  for (const LayerWeights& layer : weights.layers) {
    LayerOnDevice placed;
    if (const auto* recurrent = std::get_if<RecurrentWeights>(&layer.mixer)) {
      placed.mixer = place(arena, *recurrent);
    } else {
      placed.mixer = place(arena, std::get<AttentionWeights>(layer.mixer));
    }
    std::visit([&](const auto& mlp) { placed.mlp = place(arena, mlp); }, layer.mlp);
    layers.push_back(std::move(placed));
  }
  norm = place(arena, weights.norm);
  const bool tied = weights.lm_head.weight == weights.embed_tokens.weight;
  head = tied ? Stack{.parts = {{.matrix = embedding, .first = 0}}, .offsets = {0}, .out = embedding.out}
              : place(arena, Sources{&weights.lm_head});
}

// Matrices of equal width and inputs as one: their codes, scales and biases in a row each.
Matrix DeviceWeights::place_run(Arena& arena, const Sources& run) {
  const QuantizedMatrix& first = *run.front();
  Matrix placed{
      .codes = {}, .scales = {}, .biases = {}, .out = 0, .in = first.in, .bits = device_bits(first.bits)};
  std::int64_t rows = 0;
  for (const QuantizedMatrix* m : run) {
    placed.out += m->out;
    rows += m->experts * m->out;
  }
  const std::int64_t code_bytes = first.in * placed.bits / 8;
  const std::int64_t scale_bytes = first.in / group_size_ * 2;
  placed.codes = arena.take_bytes(rows * code_bytes);
  placed.scales = arena.take_bytes(rows * scale_bytes);
  placed.biases = arena.take_bytes(rows * scale_bytes);
  std::int64_t row = 0;
  for (const QuantizedMatrix* m : run) {
    const std::int64_t count = m->experts * m->out;
    const auto part = [&](const View& of, std::int64_t row_bytes) {
      return View{.buffer = of.buffer, .offset = of.offset + row * row_bytes, .size = count * row_bytes};
    };
    const int times = m->group_size / group_size_;
    copies.add_codes(m->weight, m->bits, part(placed.codes, code_bytes));
    copies.add_repeated(m->scales, times, part(placed.scales, scale_bytes));
    copies.add_repeated(m->biases, times, part(placed.biases, scale_bytes));
    row += count;
  }
  return placed;
}

Stack DeviceWeights::place(Arena& arena, const Sources& sources) {
  Stack stack;
  Sources run;
  const auto close_run = [&] {
    if (run.empty()) return;
    const Matrix matrix = place_run(arena, run);
    stack.parts.push_back({.matrix = matrix, .first = stack.out - matrix.out});
    run.clear();
  };
  for (const QuantizedMatrix* m : sources) {
    if (!run.empty() && device_bits(run.back()->bits) != device_bits(m->bits)) close_run();
    stack.offsets.push_back(stack.out);
    stack.out += m->out;
    run.push_back(m);
  }
  close_run();
  return stack;
}

// The output gate is read four channels at a time, so a row has to start at a multiple of four.
Stack DeviceWeights::place_padded(Arena& arena, const Sources& sources) {
  Stack stack = place(arena, sources);
  stack.out = (stack.out + 3) / 4 * 4;
  return stack;
}

View DeviceWeights::place(Arena& arena, const Vector& vector) {
  const View view = arena.take<float>(static_cast<std::int64_t>(vector.size()));
  copies.add_bytes(reinterpret_cast<const std::byte*>(vector.data()), view);
  return view;
}

RecurrentOnDevice DeviceWeights::place(Arena& arena, const RecurrentWeights& w) {
  return {.input_norm = place(arena, w.input_layernorm),
          .in_proj = place_padded(arena, Sources{&w.in_proj_qkv, &w.in_proj_z, &w.in_proj_b, &w.in_proj_a}),
          .taps = place(arena, w.conv1d),
          .A_log = place(arena, w.A_log),
          .dt_bias = place(arena, w.dt_bias),
          .norm = place(arena, w.norm),
          .out_proj = place(arena, w.out_proj)};
}

AttentionOnDevice DeviceWeights::place(Arena& arena, const AttentionWeights& w) {
  return {.input_norm = place(arena, w.input_layernorm),
          .in_proj = place(arena, Sources{&w.q_proj, &w.k_proj, &w.v_proj}),
          .q_norm = place(arena, w.q_norm),
          .k_norm = place(arena, w.k_norm),
          .out_proj = place(arena, w.o_proj)};
}

MoeOnDevice DeviceWeights::place(Arena& arena, const MoeWeights& w) {
  return {.norm = place(arena, w.post_attention_layernorm),
          .router = place(arena, Sources{&w.gate, &w.shared_expert_gate}),
          .gate = place(arena, w.gate_proj),
          .up = place(arena, w.up_proj),
          .down = place(arena, w.down_proj),
          .shared_gate = place(arena, w.shared_gate_proj),
          .shared_up = place(arena, w.shared_up_proj),
          .shared_down = place(arena, w.shared_down_proj)};
}

MlpOnDevice DeviceWeights::place(Arena& arena, const MlpWeights& w) {
  return {.norm = place(arena, w.post_attention_layernorm),
          .gate = place(arena, w.gate_proj),
          .up = place(arena, w.up_proj),
          .down = place(arena, w.down_proj)};
}

namespace {

template <class Look>
void for_each_matrix(const RecurrentWeights& w, Look look) {
  for (const auto* m : {&w.in_proj_qkv, &w.in_proj_z, &w.in_proj_a, &w.in_proj_b, &w.out_proj}) look(*m);
}
template <class Look>
void for_each_matrix(const AttentionWeights& w, Look look) {
  for (const auto* m : {&w.q_proj, &w.k_proj, &w.v_proj, &w.o_proj}) look(*m);
}
template <class Look>
void for_each_matrix(const MoeWeights& w, Look look) {
  for (const auto* m : {&w.gate, &w.shared_expert_gate, &w.gate_proj, &w.up_proj, &w.down_proj,
                        &w.shared_gate_proj, &w.shared_up_proj, &w.shared_down_proj}) {
    look(*m);
  }
}
template <class Look>
void for_each_matrix(const MlpWeights& w, Look look) {
  for (const auto* m : {&w.gate_proj, &w.up_proj, &w.down_proj}) look(*m);
}

Result<void> check_limit(const char* what, std::int64_t value, std::int64_t most) {
  if (value <= most) return {};
  return fail(ErrorCode::kUnsupported, "metal: {} {}, at most {}", value, what, most);
}

}  // namespace

Result<void> check_supported(const ModelWeights& weights) {
  LILY_TRY_VOID(check_limit("experts", weights.shapes.experts, kMaxExperts));
  return check_limit("experts a token", weights.shapes.experts_per_token, kMaxExpertsPerToken);
}

bool has_small_groups(const ModelWeights& weights) {
  bool small = false;
  const auto look = [&](const QuantizedMatrix& m) { small = small || m.group_size < kGroup; };
  look(weights.embed_tokens);
  look(weights.lm_head);
  for (const LayerWeights& layer : weights.layers) {
    std::visit([&](const auto& mixer) { for_each_matrix(mixer, look); }, layer.mixer);
    std::visit([&](const auto& mlp) { for_each_matrix(mlp, look); }, layer.mlp);
  }
  return small;
}

}  // namespace lily::metal
