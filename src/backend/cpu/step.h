// One step's rows, in the order the backend works on them, and which route each takes through the products.
//
// A row's result must not depend on the rows beside it, so its route follows from its own segment alone:
// segments of one token take the decode kernels, longer ones the prefill kernels. Prefill rows come first.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/buffer.h"

namespace lily::cpu {

enum class Route { kPrefill, kDecode };
inline constexpr std::array kRoutes = {Route::kPrefill, Route::kDecode};

/// A value for each route.
template <class T>
struct PerRoute {
  T prefill{};
  T decode{};
  T& operator[](Route route) { return route == Route::kPrefill ? prefill : decode; }
  const T& operator[](Route route) const { return route == Route::kPrefill ? prefill : decode; }
};

/// Where a segment's rows are.
struct StepSegment {
  Segment segment;
  Route route = Route::kDecode;
  std::int64_t first_row = 0;  ///< in the step's order
};

class Step {
 public:
  Step(const Shapes& shapes, std::int64_t max_rows);

  void begin(const Batch& batch);

  /// In the batch's order.
  [[nodiscard]] const std::vector<StepSegment>& segments() const { return segments_; }
  [[nodiscard]] std::int64_t rows() const { return count_.prefill + count_.decode; }
  [[nodiscard]] std::int64_t count(Route route) const { return count_[route]; }
  /// The first row of a route.
  [[nodiscard]] std::int64_t first(Route route) const {
    return route == Route::kPrefill ? 0 : count_.prefill;
  }
  [[nodiscard]] Route route(std::int64_t row) const {
    return row < count_.prefill ? Route::kPrefill : Route::kDecode;
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
  PerRoute<std::int64_t> count_;
  Buffer<TokenId> tokens_;
  Buffer<float> cosine_;
  Buffer<float> sine_;
};

}  // namespace lily::cpu
