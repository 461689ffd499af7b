// Matrix products over the rows of a step: which kernel each phase takes, and how output rows are spread over
// threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/activations.h"
#include "backend/cpu/kernels.h"
#include "base/threads.h"
#include "model/weights.h"

namespace lily::cpu {

/// Rows of outputs that a thread takes at once: whole tiles of every instruction set, and of one quantisation
/// group.
inline constexpr std::int64_t kRowBlock = 64;

/// One of the products that share an input: y = W x into columns of a row-major buffer.
struct Projection {
  const QuantizedMatrix& matrix;
  float* out;  ///< of row 0; rows in the step's order
  std::int64_t out_stride;
  bool accumulate = false;  ///< out += y
};

/// A part of one product: output rows [row_begin, row_end) of one expert for some rows of one phase.
struct PartialProduct {
  const QuantizedMatrix& matrix;
  std::int64_t expert = 0;
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  const std::int32_t* tokens = nullptr;  ///< rows of the input, within the phase; null for 0, 1, 2, ...
  std::int64_t count = 0;
  float* out = nullptr;  ///< element (i, row) goes to out[out_rows[i] * out_stride + row - out_origin]
  std::int64_t out_stride = 0;
  std::int64_t out_origin = 0;
  const std::int32_t* out_rows = nullptr;
  const float* factors = nullptr;          ///< out += factors[i] * y
  bool accumulate = false;                 ///< out += y
  Precision precision = Precision::kFine;  ///< of the activations, unless the backend is exact
};

class Products {
 public:
  /// `max_in`: the widest input of any product.
  Products(const Kernels& kernels, ThreadPool& pool, std::int64_t max_in, bool exact);

  /// All of them for every row of `x`, spread over the pool's threads.
  void project(const Activations& x, std::span<const Projection> projections);
  /// The same from the f32 rows, whatever the mode: for the router, where a rounding can flip a choice.
  void project_exact(const Activations& x, std::span<const Projection> projections);

  /// In the calling thread, number `thread` of the pool.
  void compute(const Activations& x, Phase phase, const PartialProduct& part, int thread);

 private:
  void project_by(const Activations& x, std::span<const Projection> projections, bool exact);
  void compute_by(const Activations& x, Phase phase, const PartialProduct& part, int thread, bool exact);

  const Kernels& kernels_;
  ThreadPool& pool_;
  const bool exact_;
  std::vector<Buffer<float>> scratch_;  // one a thread
};

}  // namespace lily::cpu
