#include "backend/metal/device_weights.h"

#include <algorithm>
#include <cstring>

#include "backend/metal/kernels/kernels.h"
#include "base/threads.h"

namespace lily::metal {

DeviceWeights::DeviceWeights(const ModelWeights& weights, Arena& arena) {
  embedding = place(arena, weights.embed_tokens);
  for (const LayerWeights& layer : weights.layers) {
    LayerOnDevice placed;
    if (const auto* recurrent = std::get_if<RecurrentWeights>(&layer.mixer)) {
      placed.mixer = place(arena, *recurrent);
    } else {
      placed.mixer = place(arena, std::get<AttentionWeights>(layer.mixer));
    }
    placed.moe = place(arena, std::get<MoeWeights>(layer.mlp));
    layers.push_back(std::move(placed));
  }
  norm = place(arena, weights.norm);
  const bool tied = weights.lm_head.weight == weights.embed_tokens.weight;
  head = tied ? Stack{.parts = {{.matrix = embedding, .first = 0}}, .offsets = {0}, .out = embedding.out}
              : place(arena, Sources{&weights.lm_head});
}

// Matrices of equal bits and inputs as one: their codes, scales and biases in a row each.
Matrix DeviceWeights::place_run(Arena& arena, const Sources& run) {
  const QuantizedMatrix& first = *run.front();
  Matrix placed{.codes = {}, .scales = {}, .biases = {}, .out = 0, .in = first.in, .bits = first.bits};
  std::int64_t rows = 0;
  for (const QuantizedMatrix* m : run) {
    placed.out += m->out;
    rows += m->experts * m->out;
  }
  placed.codes = arena.take_bytes(rows * first.row_bytes());
  placed.scales = arena.take_bytes(rows * first.groups() * 2);
  placed.biases = arena.take_bytes(rows * first.groups() * 2);
  std::int64_t row = 0;
  for (const QuantizedMatrix* m : run) {
    const std::int64_t count = m->experts * m->out;
    const auto copy = [&](const std::byte* from, const View& to, std::int64_t row_bytes) {
      View part = to.from(row * row_bytes);
      part.size = count * row_bytes;
      copies_.push_back({.from = from, .to = part});
    };
    copy(m->weight, placed.codes, first.row_bytes());
    copy(m->scales, placed.scales, first.groups() * 2);
    copy(m->biases, placed.biases, first.groups() * 2);
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
    if (!run.empty() && run.back()->bits != m->bits) close_run();
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
  copies_.push_back({.from = reinterpret_cast<const std::byte*>(vector.data()), .to = view});
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

// From mapped files: several threads keep the disk busy and fault pages in side by side.
void DeviceWeights::copy() const {
  constexpr std::int64_t kPiece = std::int64_t{16} << 20;
  struct Piece {
    const std::byte* from;
    std::byte* to;
    std::int64_t size;
  };
  std::vector<Piece> pieces;
  for (const Copy& c : copies_) {
    for (std::int64_t at = 0; at < c.to.size; at += kPiece) {
      pieces.push_back(
          {.from = c.from + at, .to = c.to.as<std::byte>() + at, .size = std::min(kPiece, c.to.size - at)});
    }
  }
  ThreadPool pool(available_cores());
  pool.parallel_for(static_cast<std::int64_t>(pieces.size()), 1,
                    [&](std::int64_t begin, std::int64_t end, int /*thread*/) {
                      for (std::int64_t i = begin; i < end; ++i) {
                        const Piece& p = pieces[static_cast<std::size_t>(i)];
                        std::memcpy(p.to, p.from, static_cast<std::size_t>(p.size));
                      }
                    });
}

namespace {

Result<void> check_matrix(const char* name, const QuantizedMatrix& m) {
  if (m.group_size == kGroup && (m.bits == 4 || m.bits == 8)) return {};
  return fail(ErrorCode::kUnsupported,
              "metal: {} has {} bits in groups of {}, expected 4 or 8 in groups of {}", name, m.bits,
              m.group_size, kGroup);
}

Result<void> check_mixer(const RecurrentWeights& w) {
  LILY_TRY_VOID(check_matrix("in_proj_qkv", w.in_proj_qkv));
  LILY_TRY_VOID(check_matrix("in_proj_z", w.in_proj_z));
  LILY_TRY_VOID(check_matrix("in_proj_a", w.in_proj_a));
  LILY_TRY_VOID(check_matrix("in_proj_b", w.in_proj_b));
  return check_matrix("out_proj", w.out_proj);
}
Result<void> check_mixer(const AttentionWeights& w) {
  LILY_TRY_VOID(check_matrix("q_proj", w.q_proj));
  LILY_TRY_VOID(check_matrix("k_proj", w.k_proj));
  LILY_TRY_VOID(check_matrix("v_proj", w.v_proj));
  return check_matrix("o_proj", w.o_proj);
}
Result<void> check_moe(const MoeWeights& w) {
  LILY_TRY_VOID(check_matrix("mlp.gate", w.gate));
  LILY_TRY_VOID(check_matrix("shared_expert_gate", w.shared_expert_gate));
  LILY_TRY_VOID(check_matrix("switch_mlp.gate_proj", w.gate_proj));
  LILY_TRY_VOID(check_matrix("switch_mlp.up_proj", w.up_proj));
  LILY_TRY_VOID(check_matrix("switch_mlp.down_proj", w.down_proj));
  LILY_TRY_VOID(check_matrix("shared_expert.gate_proj", w.shared_gate_proj));
  LILY_TRY_VOID(check_matrix("shared_expert.up_proj", w.shared_up_proj));
  return check_matrix("shared_expert.down_proj", w.shared_down_proj);
}

Result<void> check_limit(const char* what, std::int64_t value, std::int64_t most) {
  if (value <= most) return {};
  return fail(ErrorCode::kUnsupported, "metal: {} {}, at most {}", value, what, most);
}

}  // namespace

Result<void> check_supported(const ModelWeights& weights) {
  if (weights.shapes.dense_width > 0) {
    return fail(ErrorCode::kUnsupported,
                "metal: a dense feed-forward of {} columns, expected a mixture of experts",
                weights.shapes.dense_width);
  }
  LILY_TRY_VOID(check_matrix("embed_tokens", weights.embed_tokens));
  LILY_TRY_VOID(check_matrix("lm_head", weights.lm_head));
  for (const LayerWeights& layer : weights.layers) {
    LILY_TRY_VOID(std::visit([](const auto& mixer) { return check_mixer(mixer); }, layer.mixer));
    LILY_TRY_VOID(check_moe(std::get<MoeWeights>(layer.mlp)));
  }
  LILY_TRY_VOID(check_limit("experts", weights.shapes.experts, kMaxExperts));
  return check_limit("experts a token", weights.shapes.experts_per_token, kMaxExpertsPerToken);
}

}  // namespace lily::metal
