// The tensors of an original (Hugging Face) checkpoint under the names and in the layout of the MLX
// conversion.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"

namespace lily {

/// Consecutive rows of a stored tensor, seen as a matrix of its last dimension.
struct TensorRows {
  TensorView tensor;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// What one tensor of the conversion is made of.
struct ConvertedTensor {
  std::vector<TensorRows> parts;  ///< end to end
  std::int64_t columns = 0;
  bool add_one = false;  ///< a gain that the original stores less 1
};

/// One row in f32, as bf16 holds it: conversion goes through bf16, whatever the original's type.
void read_row(const ConvertedTensor& tensor, std::int64_t row, std::span<float> out);

class OriginalTensors {
 public:
  /// Refuses what is quantised or converted already.
  static Result<OriginalTensors> of(Checkpoint& checkpoint);

  /// Where the values of `planned`, a tensor of the unquantised layout, come from; names what is missing or
  /// of another shape.
  Result<ConvertedTensor> find(const std::string& name, const std::vector<std::int64_t>& shape);

 private:
  explicit OriginalTensors(Checkpoint& checkpoint) : checkpoint_(checkpoint) {}
  Result<TensorView> take(const std::string& name, const std::vector<std::int64_t>& shape);
  Result<ConvertedTensor> experts(const std::string& mlp, const std::string& projection,
                                  const std::vector<std::int64_t>& shape);
  [[nodiscard]] std::string original_name(const std::string& name) const;

  Checkpoint& checkpoint_;
  std::string
      prefix_;  ///< of the text model: "model.language_model." or, in a text-only checkpoint, "model."
};

}  // namespace lily
