// The inputs of a matrix product: rows in f32 and, unless the backend is exact, their int8 codes in the
// layout of the rows' route.
#pragma once

#include <cstdint>

#include "backend/cpu/buffer.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/step.h"

namespace lily::cpu {

class Activations {
 public:
  Activations(const Kernels& kernels, std::int64_t max_rows, std::int64_t max_width, bool exact);

  /// How the next rows are shaped: `width` numbers each, so many a route; prefill rows come first.
  void shape(std::int64_t width, PerRoute<std::int64_t> rows);

  [[nodiscard]] std::int64_t width() const { return width_; }
  [[nodiscard]] std::int64_t rows(Route route) const { return rows_[route]; }
  [[nodiscard]] float* values(Route route, std::int64_t row) {
    return values_.data() + (first(route) + row) * width_;
  }
  [[nodiscard]] const float* values(Route route) const { return values_.data() + first(route) * width_; }
  [[nodiscard]] const QuantizedRows& quantized(Route route) const { return quantized_[route]; }

  /// Makes the codes of elements [column, column + count) of a row, given as `x`; both multiples of 64.
  /// Nothing to do when exact. Threads may work on different parts of a row.
  void quantize(Route route, std::int64_t row, std::int64_t column, std::int64_t count, const float* x);

 private:
  [[nodiscard]] std::int64_t first(Route route) const { return route == Route::kPrefill ? 0 : rows_.prefill; }

  struct Codes {
    Buffer<std::int8_t> split;
    Buffer<std::int8_t> natural;
    Buffer<float> scales;
    Buffer<float> sums;
  };

  const Kernels& kernels_;
  const bool exact_;
  std::int64_t width_ = 0;
  PerRoute<std::int64_t> rows_;
  Buffer<float> values_;
  PerRoute<Codes> codes_;
  PerRoute<QuantizedRows> quantized_;
};

}  // namespace lily::cpu
