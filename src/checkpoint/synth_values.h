// Random weights that behave: a pure function from seed, tensor and place to bytes, so that any thread can
// make any part of a checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "checkpoint/config.h"
#include "checkpoint/layout.h"

namespace lily {

/// The values of one tensor of published_layout(config).
///
/// Matrices have zero mean and standard deviation 1/sqrt(in); those that write to the residual stream are
/// smaller by sqrt(2 layers), so that it does not grow with depth; the router has 2/sqrt(in), lm_head
/// 3/sqrt(in) (logits of standard deviation 3), the embedding 1, or a tied one what lm_head has. Gains are 1
/// + 0.1 N, conv1d 0.5 N, A_log = log U(0.5, 16), dt_bias U(-4, 1).
class SynthTensor {
 public:
  SynthTensor(const TensorPlan& plan, const ModelConfig& config, std::uint64_t seed);

  /// Writes bytes [offset, offset + out.size()) of the tensor; offset is a multiple of 8.
  void fill(std::int64_t offset, std::span<std::byte> out) const;

 private:
  enum class Kind { kCodes, kScales, kBiases, kGain, kConv, kALog, kDtBias };

  [[nodiscard]] std::uint16_t element(std::uint64_t index) const;
  [[nodiscard]] std::uint16_t scale(std::uint64_t index) const;

  Kind kind_;
  std::uint64_t key_;
  float scale_ = 0;     // kScales, kBiases: the scale that gives the intended deviation
  float midpoint_ = 0;  // kBiases: the mean of the codes
};

}  // namespace lily
