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
  /// For `rows` rows of up to `width` activations, a multiple of kGroup, or more and narrower ones.
  QuantizedMemory(std::int64_t rows, std::int64_t width)
      : numbers_(rows * width),
        planes_(4 * numbers_ + kLastTile * 2 * width),
        factors_(4 * numbers_ / kGroup) {}

  [[nodiscard]] std::int64_t bytes() const { return planes_.bytes() + factors_.bytes(); }

  [[nodiscard]] QuantizedRows rows(std::int64_t capacity) {
    const std::int64_t groups = numbers_ / kGroup;
    std::int8_t* planes = planes_.data();
    float* factors = factors_.data();
    return {.high = {planes, planes + numbers_},
            .low = {planes + 2 * numbers_, planes + 3 * numbers_},
            .coarse = {factors, factors + groups},
            .fine = {factors + 2 * groups, factors + 3 * groups},
            .bf16 = {.rows = reinterpret_cast<std::uint16_t*>(planes),
                     .words = reinterpret_cast<std::uint32_t*>(planes + 2 * numbers_)},
            .capacity = capacity};
  }

 private:
  static constexpr std::int64_t kLastTile = 15;  // rows that a tile of bf16 may lack

  std::int64_t numbers_ = 0;
  Buffer<std::int8_t> planes_;  // high split, high natural, low split, low natural; or bf16 rows, words
  Buffer<float> factors_;       // coarse scales, coarse sums, fine scales, fine sums
};

}  // namespace lily::cpu
