// The plain f32 operations that the reference blocks are written in. Nothing here is fast; everything is
// checked against goldens and judges the other backends.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/weights.h"

namespace lily::reference {

/// A row-major matrix of floats.
struct Rows {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<float> data;

  Rows(std::int64_t r, std::int64_t c) : rows(r), cols(c), data(static_cast<std::size_t>(r * c), 0.0F) {}
  [[nodiscard]] std::span<float> row(std::int64_t r) {
    return std::span(data).subspan(static_cast<std::size_t>(r * cols), static_cast<std::size_t>(cols));
  }
  [[nodiscard]] std::span<const float> row(std::int64_t r) const {
    return std::span(data).subspan(static_cast<std::size_t>(r * cols), static_cast<std::size_t>(cols));
  }
};

[[nodiscard]] float sigmoid(float x);
[[nodiscard]] float silu(float x);      ///< x sigmoid(x)
[[nodiscard]] float softplus(float x);  ///< log(1 + e^x), x itself above 20
[[nodiscard]] float dot(std::span<const float> a, std::span<const float> b);

/// Row `row` of expert `expert`, w = scale * code + bias, into out [in].
void dequantize_row(const QuantizedMatrix& matrix, std::int64_t expert, std::int64_t row,
                    std::span<float> out);

/// x [T, in] times the transposed matrix of one expert: [T, out].
[[nodiscard]] Rows linear(const QuantizedMatrix& matrix, const Rows& x, std::int64_t expert = 0);

/// x / sqrt(mean(x^2) + eps) * gain, row by row.
[[nodiscard]] Rows rms_norm(const Rows& x, std::span<const float> gain, float eps);
/// The same, in place, on one row.
void rms_norm_in_place(std::span<float> x, std::span<const float> gain, float eps);

/// x / sqrt(sum(x^2) + 1e-6), in place (section 4.4 step 4).
void l2_normalize(std::span<float> x);

/// Rotates the first kRotaryDim elements of a head at `position`: element j pairs with j + 32 (section 1.3).
void rope(std::span<float> head, std::int64_t position, double theta);

/// e^x / sum(e^x), in place.
void softmax(std::span<float> x);

/// Indices of the k largest, descending; the lowest index wins a tie.
[[nodiscard]] std::vector<std::int64_t> top_k(std::span<const float> x, std::int64_t k);

}  // namespace lily::reference
