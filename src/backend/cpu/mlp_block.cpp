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
    const ColumnRange columns = {task * kRowBlock, (task + 1) * kRowBlock};
    for (const Phase phase : kPhases) expand_all(w.gate_proj, w.up_proj, phase, columns, thread);
  });
  products_.project(dense_expanded_, std::array{Projection{w.down_proj, residual_.data(), s_.hidden, true}});
}

void CpuBackend::expand_all(const QuantizedMatrix& gate_proj, const QuantizedMatrix& up_proj, Phase phase,
                            ColumnRange columns, int thread) {
  expand({.gate_proj = gate_proj,
          .up_proj = up_proj,
          .tokens = all_rows_.data(),
          .count = step_.count(phase),
          .out = dense_expanded_},
         phase, columns, thread);
}

void CpuBackend::expand(const Expansion& e, Phase phase, ColumnRange columns, int thread) {
  ThreadScratch& scratch = scratch_[static_cast<std::size_t>(thread)];
  const std::int64_t width = columns.end - columns.begin;
  for (std::int64_t begin = 0; begin < e.count; begin += kMoeTokens) {
    const auto part = [&](const QuantizedMatrix& matrix, float* out) {
      return PartialProduct{.matrix = matrix,
                            .expert = e.expert,
                            .row_begin = columns.begin,
                            .row_end = columns.end,
                            .tokens = e.tokens + begin,
                            .count = std::min(kMoeTokens, e.count - begin),
                            .out = out,
                            .out_stride = width,
                            .out_origin = columns.begin,
                            .precision = e.precision};
    };
    const PartialProduct gate = part(e.gate_proj, scratch.gate.data());
    products_.compute(input_, phase, gate, thread);
    products_.compute(input_, phase, part(e.up_proj, scratch.up.data()), thread);
    for (std::int64_t i = 0; i < gate.count; ++i) {
      const std::int64_t entry = e.first_entry + begin + i;
      float* inner = e.out.values(phase, entry) + columns.begin;
      kernels_.swiglu(scratch.gate.data() + i * width, scratch.up.data() + i * width, width, inner);
      e.out.quantize(phase, entry, columns.begin, width, inner);
    }
  }
}

}  // namespace lily::cpu
