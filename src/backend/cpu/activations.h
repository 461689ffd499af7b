// The inputs of a matrix product: rows in f32 and, unless the backend is exact, their integer codes in the
// layout of the rows' phase.
#pragma once

#include <cstdint>

#include "backend/cpu/buffer.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/quantized_memory.h"
#include "backend/cpu/step.h"

namespace lily::cpu {

class Activations {
 public:
  Activations(const Kernels& kernels, std::int64_t max_rows, std::int64_t max_width, bool exact);

  /// How the next rows are shaped: `width` numbers each, so many a phase; prefill rows come first.
  void shape(std::int64_t width, PerPhase<std::int64_t> rows);

  [[nodiscard]] std::int64_t bytes() const {
    return values_.bytes() + codes_.prefill.bytes() + codes_.decode.bytes();
  }

  [[nodiscard]] std::int64_t width() const { return width_; }
  [[nodiscard]] std::int64_t rows(Phase phase) const { return rows_[phase]; }
  [[nodiscard]] float* values(Phase phase, std::int64_t row) {
    return values_.data() + (first(phase) + row) * width_;
  }
  [[nodiscard]] const float* values(Phase phase) const { return values_.data() + first(phase) * width_; }
  [[nodiscard]] const QuantizedRows& quantized(Phase phase) const { return quantized_[phase]; }

  /// Makes the codes of elements [column, column + count) of a row, given as `x`; both multiples of 64.
  /// Nothing to do when exact. Threads may work on different parts of a row.
  void quantize(Phase phase, std::int64_t row, std::int64_t column, std::int64_t count, const float* x);

 private:
  [[nodiscard]] std::int64_t first(Phase phase) const { return phase == Phase::kPrefill ? 0 : rows_.prefill; }

  const Kernels& kernels_;
  const bool exact_;
  std::int64_t width_ = 0;
  PerPhase<std::int64_t> rows_;
  Buffer<float> values_;
  PerPhase<QuantizedMemory> codes_;
  PerPhase<QuantizedRows> quantized_;
};

}  // namespace lily::cpu
