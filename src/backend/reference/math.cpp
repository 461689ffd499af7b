#include "backend/reference/math.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/bf16.h"

namespace lily::reference {

float sigmoid(float x) {
  return 1.0F / (1.0F + std::exp(-x));
}
float silu(float x) {
  return x * sigmoid(x);
}
float softplus(float x) {
  return x > 20.0F ? x : std::log1p(std::exp(x));
}

float dot(std::span<const float> a, std::span<const float> b) {
  // Sixteen partial sums: what the compiler may not do by itself, and more accurate than one running sum.
  constexpr std::size_t kLanes = 16;
  std::array<float, kLanes> sums{};
  std::size_t i = 0;
  for (; i + kLanes <= a.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  float sum = 0;
  for (; i < a.size(); ++i) sum += a[i] * b[i];
  return std::accumulate(sums.begin(), sums.end(), sum);
}

namespace {

// Code `index` of a row: a row is one stream of bits, lowest first, so a code may straddle two bytes.
unsigned code_at(const std::byte* codes, std::int64_t index, int bits) {
  const std::int64_t bit = index * bits;
  const auto shift = static_cast<unsigned>(bit % 8);
  auto window = static_cast<unsigned>(codes[bit / 8]);
  if (shift + static_cast<unsigned>(bits) > 8) window |= static_cast<unsigned>(codes[bit / 8 + 1]) << 8;
  return (window >> shift) & ((1U << static_cast<unsigned>(bits)) - 1U);
}

}  // namespace

void dequantize_row(const QuantizedMatrix& m, std::int64_t expert, std::int64_t row, std::span<float> out) {
  const std::int64_t index = expert * m.out + row;
  const std::byte* codes = m.weight + index * m.row_bytes();
  const std::byte* scales = m.scales + index * m.groups() * 2;
  const std::byte* biases = m.biases + index * m.groups() * 2;
  for (std::int64_t c = 0; c < m.in; ++c) {
    const std::int64_t group = c / m.group_size;
    const float scale = bf16_to_f32(load_unaligned<std::uint16_t>(scales + group * 2));
    const float bias = bf16_to_f32(load_unaligned<std::uint16_t>(biases + group * 2));
    out[static_cast<std::size_t>(c)] = scale * static_cast<float>(code_at(codes, c, m.bits)) + bias;
  }
}

Rows linear(const QuantizedMatrix& matrix, const Rows& x, std::int64_t expert) {
  Rows y(x.rows, matrix.out);
  std::vector<float> weight(static_cast<std::size_t>(matrix.in));
  for (std::int64_t o = 0; o < matrix.out; ++o) {
    dequantize_row(matrix, expert, o, weight);
    for (std::int64_t t = 0; t < x.rows; ++t) y.row(t)[static_cast<std::size_t>(o)] = dot(weight, x.row(t));
  }
  return y;
}

void rms_norm_in_place(std::span<float> x, std::span<const float> gain, float eps) {
  const float mean_square = dot(x, x) / static_cast<float>(x.size());
  const float scale = 1.0F / std::sqrt(mean_square + eps);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= scale * gain[i];
}

Rows rms_norm(const Rows& x, std::span<const float> gain, float eps) {
  Rows y = x;
  for (std::int64_t t = 0; t < y.rows; ++t) rms_norm_in_place(y.row(t), gain, eps);
  return y;
}

void l2_normalize(std::span<float> x) {
  const float scale = 1.0F / std::sqrt(dot(x, x) + 1e-6F);
  for (float& v : x) v *= scale;
}

void rope(std::span<float> head, std::int64_t position, double theta) {
  constexpr std::int64_t kHalf = kRotaryDim / 2;
  for (std::int64_t j = 0; j < kHalf; ++j) {
    // At position 262,143 the angle is 262,143 rad: reduced in double.
    const double frequency = std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(kRotaryDim));
    const double angle = static_cast<double>(position) * frequency;
    const auto c = static_cast<float>(std::cos(angle));
    const auto s = static_cast<float>(std::sin(angle));
    float& first = head[static_cast<std::size_t>(j)];
    float& second = head[static_cast<std::size_t>(j + kHalf)];
    const float a = first;
    const float b = second;
    first = a * c - b * s;
    second = b * c + a * s;
  }
}

void softmax(std::span<float> x) {
  const float largest = *std::ranges::max_element(x);
  float sum = 0;
  for (float& v : x) {
    v = std::exp(v - largest);
    sum += v;
  }
  for (float& v : x) v /= sum;
}

std::vector<std::int64_t> top_k(std::span<const float> x, std::int64_t k) {
  std::vector<std::int64_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](std::int64_t a, std::int64_t b) {
    const float xa = x[static_cast<std::size_t>(a)];
    const float xb = x[static_cast<std::size_t>(b)];
    return xa != xb ? xa > xb : a < b;  // of equals the first, as in a stable sort
  });
  order.resize(static_cast<std::size_t>(k));
  return order;
}

}  // namespace lily::reference
