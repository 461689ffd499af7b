#include "backend/cpu/activations.h"

#include "base/check.h"

namespace lily::cpu {

Activations::Activations(const Kernels& kernels, std::int64_t max_rows, std::int64_t max_width, bool exact)
    : kernels_(kernels), exact_(exact), values_(max_rows * max_width) {
  if (exact) return;
  for (const Phase phase : kPhases) codes_[phase] = QuantizedMemory(max_rows, max_width);
}

void Activations::shape(std::int64_t width, PerPhase<std::int64_t> rows) {
  LILY_CHECK((rows.prefill + rows.decode) * width <= values_.size(), "{} + {} rows of {} in room for {}",
             rows.prefill, rows.decode, width, values_.size());
  width_ = width;
  rows_ = rows;
  if (exact_) return;
  for (const Phase phase : kPhases) quantized_[phase] = codes_[phase].rows(rows[phase]);
}

void Activations::quantize(Phase phase, std::int64_t row, std::int64_t column, std::int64_t count,
                           const float* x) {
  if (exact_) return;
  kernels_.quantize({.values = x,
                     .out = quantized_[phase],
                     .token = row,
                     .first_group = column / kGroup,
                     .groups = count / kGroup,
                     .row_groups = width_ / kGroup,
                     .by_group = phase == Phase::kPrefill});
}

}  // namespace lily::cpu
