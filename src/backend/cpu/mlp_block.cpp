// The dense feed-forward, and the gate and up products that it shares with the experts.
#include <algorithm>
#include <array>

#include "backend/cpu/cpu_backend.h"

namespace lily::cpu {

void CpuBackend::mlp_block(const MlpBlock& block) {
  const MlpWeights& w = block.weights;
  norm_rows(w.post_attention_layernorm);
  dense_expanded_.shape(s_.dense_width, counts());
  pool_.parallel_tasks(s_.dense_width / kRowBlock, [&](std::int64_t task, int thread) {
    for (const Phase phase : kPhases) expand_all(w.gate_proj, w.up_proj, phase, task * kRowBlock, thread);
  });
  products_.project(dense_expanded_, std::array{Projection{w.down_proj, residual_.data(), s_.hidden, true}});
}

void CpuBackend::expand_all(const QuantizedMatrix& gate_proj, const QuantizedMatrix& up_proj, Phase phase,
                            std::int64_t column, int thread) {
  expand({.gate_proj = gate_proj,
          .up_proj = up_proj,
          .tokens = all_rows_.data(),
          .count = step_.count(phase),
          .out = dense_expanded_},
         phase, column, thread);
}

void CpuBackend::expand(const Expansion& e, Phase phase, std::int64_t column, int thread) {
  ThreadScratch& scratch = scratch_[static_cast<std::size_t>(thread)];
  for (std::int64_t begin = 0; begin < e.count; begin += kMoeTokens) {
    const auto part = [&](const QuantizedMatrix& matrix, float* out) {
      return PartialProduct{.matrix = matrix,
                            .expert = e.expert,
                            .row_begin = column,
                            .row_end = column + kRowBlock,
                            .tokens = e.tokens + begin,
                            .count = std::min(kMoeTokens, e.count - begin),
                            .out = out,
                            .out_stride = kRowBlock,
                            .out_origin = column,
                            .precision = e.precision};
    };
    const PartialProduct gate = part(e.gate_proj, scratch.gate.data());
    products_.compute(input_, phase, gate, thread);
    products_.compute(input_, phase, part(e.up_proj, scratch.up.data()), thread);
    for (std::int64_t i = 0; i < gate.count; ++i) {
      const std::int64_t entry = e.first_entry + begin + i;
      float* inner = e.out.values(phase, entry) + column;
      kernels_.swiglu(scratch.gate.data() + i * kRowBlock, scratch.up.data() + i * kRowBlock, kRowBlock,
                      inner);
      e.out.quantize(phase, entry, column, kRowBlock, inner);
    }
  }
}

}  // namespace lily::cpu
