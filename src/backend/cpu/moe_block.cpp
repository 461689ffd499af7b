// The mixture of experts: router, choice, routed experts grouped by expert, shared expert.
#include <algorithm>
#include <array>
#include <cmath>

#include "backend/cpu/cpu_backend.h"

namespace lily::cpu {

void CpuBackend::moe_block(const MoeBlock& block) {
  norm_rows(block.weights.post_attention_layernorm);
  route_tokens(block.weights);
  expand_experts(block.weights);
  contract_experts(block.weights);
}

// From f32 activations even when the rest is int8: a flipped choice changes a token's result by far more than
// a rounding, and the router is a hundredth of the work.
void CpuBackend::route_tokens(const MoeWeights& w) {
  products_.project_exact(input_, std::array{Projection{w.gate, router_.data(), s_.experts},
                                             Projection{w.shared_expert_gate, shared_gate_.data(), 1}});
  pool_.parallel_for(step_.rows(), 64, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) choose_experts(row);
  });
  for (const Phase phase : kPhases) {
    const std::int64_t first = step_.first(phase) * s_.experts_per_token;
    lists_[phase].build(step_.count(phase), chosen_.data() + first, chosen_weights_.data() + first);
  }
  active_experts_.clear();
  for (std::int64_t e = 0; e < s_.experts; ++e) {
    if (lists_.prefill.count(e) + lists_.decode.count(e) > 0) active_experts_.push_back(e);
  }
}

// Softmax over all experts and division by the chosen ones' sum is the softmax over the chosen ones.
void CpuBackend::choose_experts(std::int64_t row) {
  const float* logits = router_.data() + row * s_.experts;
  std::int32_t* chosen = chosen_.data() + row * s_.experts_per_token;
  float* weights = chosen_weights_.data() + row * s_.experts_per_token;
  top_k(logits, s_.experts, s_.experts_per_token, chosen);
  float total = 0;
  for (std::int64_t i = 0; i < s_.experts_per_token; ++i) {
    weights[i] = std::exp(logits[chosen[i]] - logits[chosen[0]]);
    total += weights[i];
  }
  for (std::int64_t i = 0; i < s_.experts_per_token; ++i) weights[i] /= total;
  shared_gate_[row] = 1.0F / (1.0F + std::exp(-shared_gate_[row]));
}

// Tasks are blocks of inner columns of one expert, the shared one's last. All experts' first blocks come
// before the second ones: threads that read neighbouring blocks at the same time read more slowly (a tenth to
// a quarter of what the experts of a decode step take, two threads).
void CpuBackend::expand_experts(const MoeWeights& w) {
  expanded_.shape(s_.expert_width, {.prefill = lists_.prefill.entries(), .decode = lists_.decode.entries()});
  dense_expanded_.shape(s_.shared_width, counts());
  const std::int64_t width = step_.count(Phase::kDecode) > 0 ? kRowBlock : kExpandColumns;
  const auto active = std::ssize(active_experts_);
  const std::int64_t routed = active * ((s_.expert_width + width - 1) / width);
  pool_.parallel_tasks(routed + s_.shared_width / kRowBlock, [&](std::int64_t task, int thread) {
    if (task >= routed) {
      const std::int64_t begin = (task - routed) * kRowBlock;
      for (const Phase phase : kPhases) {
        expand_all(w.shared_gate_proj, w.shared_up_proj, phase, {begin, begin + kRowBlock}, thread);
      }
      return;
    }
    const std::int64_t begin = task / active * width;
    const ColumnRange columns = {begin, std::min(begin + width, s_.expert_width)};
    const std::int64_t expert = active_experts_[static_cast<std::size_t>(task % active)];
    for (const Phase phase : kPhases) expand_expert(w, expert, phase, columns, thread);
  });
}

void CpuBackend::expand_expert(const MoeWeights& w, std::int64_t expert, Phase phase, ColumnRange columns,
                               int thread) {
  const ExpertLists& lists = lists_[phase];
  // Where 8 bits are enough: a third of the multiplications of a prompt. Divergence from f32 goldens of the
  // random checkpoint with the narrowest routing margins, and top-1 agreement: 8 bits everywhere 0.018 and 90
  // %, here and in the experts' down_proj 0.005 and 95 %, here alone 0.004 and 96 %.
  expand({.gate_proj = w.gate_proj,
          .up_proj = w.up_proj,
          .expert = expert,
          .tokens = lists.tokens(lists.first(expert)),
          .count = lists.count(expert),
          .out = expanded_,
          .first_entry = lists.first(expert),
          .precision = Precision::kCoarse},
         phase, columns, thread);
}

// Residual += sum of weight * down(inner). A thread owns columns of the residual and adds experts in
// ascending order, the shared one last, so every element is summed in one order.
void CpuBackend::contract_experts(const MoeWeights& w) {
  const std::int64_t blocks = (s_.hidden + kRowBlock - 1) / kRowBlock;
  pool_.parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    contract_columns(w, begin * kRowBlock, std::min(end * kRowBlock, s_.hidden), thread);
  });
}

void CpuBackend::contract_columns(const MoeWeights& w, std::int64_t begin, std::int64_t end, int thread) {
  for (const Phase phase : kPhases) {
    const ExpertLists& lists = lists_[phase];
    PartialProduct part{.matrix = w.down_proj,
                        .row_begin = begin,
                        .row_end = end,
                        .out = residual(step_.first(phase)),
                        .out_stride = s_.hidden};
    for (const std::int64_t expert : active_experts_) {
      const std::int64_t first = lists.first(expert);
      part.expert = expert;
      part.tokens = all_rows_.data() + first;
      part.count = lists.count(expert);
      part.out_rows = lists.tokens(first);
      part.factors = lists.weights(first);
      products_.compute(expanded_, phase, part, thread);
    }
    products_.compute(dense_expanded_, phase,
                      {.matrix = w.shared_down_proj,
                       .row_begin = begin,
                       .row_end = end,
                       .count = step_.count(phase),
                       .out = part.out,
                       .out_stride = s_.hidden,
                       .factors = shared_gate_.data() + step_.first(phase)},
                      thread);
  }
}

}  // namespace lily::cpu
