#include "backend/cpu/step.h"

#include <cmath>

namespace lily::cpu {

Step::Step(const Shapes& shapes, std::int64_t max_rows)
    : max_rows_(max_rows), tokens_(max_rows), cosine_(max_rows * kRotaryHalf), sine_(max_rows * kRotaryHalf) {
  for (std::int64_t j = 0; j < kRotaryHalf; ++j) {
    frequencies_[static_cast<std::size_t>(j)] =
        std::pow(shapes.rope_theta, -2.0 * static_cast<double>(j) / static_cast<double>(kRotaryDim));
  }
}

void Step::begin(const Batch& batch) {
  LILY_CHECK(batch.rows() <= max_rows_, "step of {} rows, limit {}", batch.rows(), max_rows_);
  segments_.clear();
  count_ = {};
  for (const Segment& segment : batch.segments) {
    LILY_CHECK(segment.phase == Phase::kPrefill || segment.rows() == 1, "decoding {} rows", segment.rows());
    segments_.push_back({.segment = segment});
    count_[segment.phase] += segment.rows();
  }
  PerPhase<std::int64_t> next{.prefill = 0, .decode = count_.prefill};
  for (StepSegment& placed : segments_) {
    place(placed, next[placed.segment.phase]);
    next[placed.segment.phase] += placed.segment.rows();
  }
}

void Step::place(StepSegment& placed, std::int64_t first_row) {
  placed.first_row = first_row;
  for (std::int64_t i = 0; i < placed.segment.rows(); ++i) {
    const std::int64_t row = first_row + i;
    tokens_[row] = placed.segment.tokens[static_cast<std::size_t>(i)];
    const auto position = static_cast<double>(placed.segment.position + i);
    for (std::int64_t j = 0; j < kRotaryHalf; ++j) {
      // In double: at position 262,143 the angle is 262,143 rad.
      const double angle = position * frequencies_[static_cast<std::size_t>(j)];
      cosine_[row * kRotaryHalf + j] = static_cast<float>(std::cos(angle));
      sine_[row * kRotaryHalf + j] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace lily::cpu
