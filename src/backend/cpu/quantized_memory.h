// The memory of quantised activations.
#pragma once

#include <cstdint>

#include "backend/cpu/buffer.h"
#include "backend/cpu/kernels.h"

namespace lily::cpu {

/// The memory that QuantizedRows point into.
class QuantizedMemory {
 public:
  QuantizedMemory() = default;
  /// For `numbers` activations, a multiple of kGroup.
  explicit QuantizedMemory(std::int64_t numbers)
      : numbers_(numbers), planes_(4 * numbers), factors_(4 * numbers / kGroup) {}

  [[nodiscard]] std::int64_t bytes() const { return planes_.bytes() + factors_.bytes(); }

  [[nodiscard]] QuantizedRows rows(std::int64_t capacity) {
    const std::int64_t groups = numbers_ / kGroup;
    std::int8_t* planes = planes_.data();
    float* factors = factors_.data();
    return {.high = {planes, planes + numbers_},
            .low = {planes + 2 * numbers_, planes + 3 * numbers_},
            .coarse = {factors, factors + groups},
            .fine = {factors + 2 * groups, factors + 3 * groups},
            .capacity = capacity};
  }

 private:
  std::int64_t numbers_ = 0;
  Buffer<std::int8_t> planes_;  // high split, high natural, low split, low natural
  Buffer<float> factors_;       // coarse scales, coarse sums, fine scales, fine sums
};

}  // namespace lily::cpu
