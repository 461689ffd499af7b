#include "backend/cpu/products.h"

#include <algorithm>

namespace lily::cpu {

Products::Products(const Kernels& kernels, ThreadPool& pool, std::int64_t max_in, bool exact)
    : kernels_(kernels), pool_(pool), exact_(exact) {
  for (int thread = 0; thread < pool.size(); ++thread) scratch_.emplace_back(matmul_scratch(max_in));
}

void Products::project(const Activations& x, std::span<const Projection> projections) {
  project_by(x, projections, exact_);
}
void Products::project_exact(const Activations& x, std::span<const Projection> projections) {
  project_by(x, projections, true);
}
void Products::compute(const Activations& x, Phase phase, const PartialProduct& part, int thread) {
  compute_by(x, phase, part, thread, exact_);
}

// The output rows of all projections are laid end to end in blocks, and a thread takes a stretch of them.
void Products::project_by(const Activations& x, std::span<const Projection> projections, bool exact) {
  std::int64_t blocks = 0;
  for (const Projection& p : projections) blocks += (p.matrix.out + kRowBlock - 1) / kRowBlock;
  pool_.parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    std::int64_t first = 0;
    for (const Projection& p : projections) {
      const std::int64_t last = first + (p.matrix.out + kRowBlock - 1) / kRowBlock;
      for (std::int64_t block = std::max(begin, first); block < std::min(end, last); ++block) {
        PartialProduct part{.matrix = p.matrix, .out_stride = p.out_stride, .accumulate = p.accumulate};
        part.row_begin = (block - first) * kRowBlock;
        part.row_end = std::min(part.row_begin + kRowBlock, p.matrix.out);
        for (const Phase phase : kPhases) {  // a block's weights are in the cache for the second phase
          part.count = x.rows(phase);
          part.out = p.out + (phase == Phase::kPrefill ? 0 : x.rows(Phase::kPrefill)) * p.out_stride;
          compute_by(x, phase, part, thread, exact);
        }
      }
      first = last;
    }
  });
}

void Products::compute_by(const Activations& x, Phase phase, const PartialProduct& part, int thread,
                          bool exact) {
  if (part.count == 0) return;
  const QuantizedMatrix& m = part.matrix;
  const std::int64_t first = part.expert * m.out;
  const MatmulArgs args = {.weight = m.weight + first * m.row_bytes(),
                           .scales = m.scales + first * m.groups() * 2,
                           .biases = m.biases + first * m.groups() * 2,
                           .in = m.in,
                           .bits = m.bits,
                           .group_size = m.group_size,
                           .row_begin = part.row_begin,
                           .row_end = part.row_end,
                           .values = x.values(phase),
                           .quantized = x.quantized(phase),
                           .precision = part.precision,
                           .tokens = part.tokens,
                           .count = part.count,
                           .out = part.out,
                           .out_stride = part.out_stride,
                           .out_origin = part.out_origin,
                           .out_rows = part.out_rows,
                           .factors = part.factors,
                           .accumulate = part.accumulate,
                           .scratch = scratch_[static_cast<std::size_t>(thread)].data()};
  if (exact || !has_integer_kernels(m.bits, m.group_size)) {
    kernels_.matmul_exact(args);
  } else if (phase == Phase::kPrefill) {
    kernels_.matmul_prefill(args);
  } else {
    kernels_.matmul_decode(args);
  }
}

}  // namespace lily::cpu
