// One step's rows, in the order the backend works on them: rows of prefill segments first, then decoding
// rows.
//
// The two take different kernels through the products, and a row's result must not depend on the rows beside
// it: so the kernels follow from its own segment's phase alone, never from how many rows there are.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/buffer.h"

namespace lily::cpu {

inline constexpr std::array kPhases = {Phase::kPrefill, Phase::kDecode};

/// A value for each phase.
template <class T>
struct PerPhase {
  T prefill{};
  T decode{};
  T& operator[](Phase phase) { return phase == Phase::kPrefill ? prefill : decode; }
  const T& operator[](Phase phase) const { return phase == Phase::kPrefill ? prefill : decode; }
};

/// Where a segment's rows are.
struct StepSegment {
  Segment segment;
  std::int64_t first_row = 0;  ///< in the step's order
};

class Step {
 public:
  Step(const Shapes& shapes, std::int64_t max_rows);

  void begin(const Batch& batch);

  /// In the batch's order.
  [[nodiscard]] const std::vector<StepSegment>& segments() const { return segments_; }
  [[nodiscard]] std::int64_t rows() const { return count_.prefill + count_.decode; }
  [[nodiscard]] std::int64_t count(Phase phase) const { return count_[phase]; }
  /// The first row of a phase.
  [[nodiscard]] std::int64_t first(Phase phase) const {
    return phase == Phase::kPrefill ? 0 : count_.prefill;
  }
  [[nodiscard]] Phase phase(std::int64_t row) const {
    return row < count_.prefill ? Phase::kPrefill : Phase::kDecode;
  }

  [[nodiscard]] TokenId token(std::int64_t row) const { return tokens_[row]; }
  /// cos and sin of the row's position times each of the 32 rotary frequencies.
  [[nodiscard]] const float* cosine(std::int64_t row) const { return cosine_.data() + row * kRotaryHalf; }
  [[nodiscard]] const float* sine(std::int64_t row) const { return sine_.data() + row * kRotaryHalf; }

 private:
  static constexpr std::int64_t kRotaryHalf = kRotaryDim / 2;
  void place(StepSegment& placed, std::int64_t first_row);

  std::int64_t max_rows_;
  std::array<double, kRotaryHalf> frequencies_{};
  std::vector<StepSegment> segments_;
  PerPhase<std::int64_t> count_;
  Buffer<TokenId> tokens_;
  Buffer<float> cosine_;
  Buffer<float> sine_;
};

}  // namespace lily::cpu
