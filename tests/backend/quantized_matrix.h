// Random quantised matrices in unaligned memory, and plain f32 code to compare products with.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "base/bf16.h"
#include "model/weights.h"

namespace lily::testing {

/// A matrix whose bytes start at an odd address, as in a real shard, with codes and scales of every size and
/// sign.
class RandomMatrix {
 public:
  RandomMatrix(std::int64_t experts, std::int64_t out, std::int64_t in, int bits, std::uint32_t seed,
               float size = 1.0F, int group_size = 64)
      : bytes_(1) {
    matrix_ = {.experts = experts,
               .out = out,
               .in = in,
               .bits = bits,
               .group_size = group_size,
               .weight = nullptr,
               .scales = nullptr,
               .biases = nullptr};
    std::mt19937 random(seed);
    const auto codes = experts * out * matrix_.row_bytes();
    const auto groups = experts * out * matrix_.groups();
    bytes_.reserve(static_cast<std::size_t>(1 + codes + 4 * groups));
    for (std::int64_t i = 0; i < codes; ++i) bytes_.push_back(static_cast<std::byte>(random() & 0xffU));
    std::uniform_real_distribution<float> spread(0.3F, 1.0F);
    // Codes centred on zero, with weights of about size / sqrt(in): products stay near `size`.
    const auto levels = static_cast<float>((1 << bits) - 1);
    const float scale = size * 3.5F / (levels * std::sqrt(static_cast<float>(in)));
    std::vector<float> scales;
    for (std::int64_t i = 0; i < groups; ++i)
      scales.push_back(scale * spread(random) * (random() % 2 == 0 ? 1.0F : -1.0F));
    for (const float s : scales) push(s);
    for (const float s : scales) push(-s * levels * (0.4F + 0.2F * spread(random)));
  }

  /// Views into this object's bytes.
  [[nodiscard]] QuantizedMatrix view() const {
    QuantizedMatrix m = matrix_;
    m.weight = bytes_.data() + 1;
    m.scales = m.weight + m.experts * m.out * m.row_bytes();
    m.biases = m.scales + m.experts * m.out * m.groups() * 2;
    return m;
  }

  /// Row `row` of expert `expert` in f32, by the definition of the format.
  [[nodiscard]] std::vector<float> row(std::int64_t expert, std::int64_t row) const {
    const QuantizedMatrix m = view();
    const std::int64_t index = expert * m.out + row;
    std::vector<float> w(static_cast<std::size_t>(m.in));
    for (std::int64_t c = 0; c < m.in; ++c) {
      unsigned code = 0;  // bit by bit: a row is a stream of them
      for (std::int64_t b = 0; b < m.bits; ++b) {
        const std::int64_t bit = c * m.bits + b;
        const auto byte = static_cast<unsigned>(m.weight[index * m.row_bytes() + bit / 8]);
        code |= ((byte >> (bit % 8)) & 1U) << b;
      }
      const std::int64_t group = index * m.groups() + c / m.group_size;
      const float scale = bf16_to_f32(load_unaligned<std::uint16_t>(m.scales + group * 2));
      const float bias = bf16_to_f32(load_unaligned<std::uint16_t>(m.biases + group * 2));
      w[static_cast<std::size_t>(c)] = scale * static_cast<float>(code) + bias;
    }
    return w;
  }

 private:
  void push(float value) {
    const std::uint16_t bits = f32_to_bf16(value);
    bytes_.push_back(static_cast<std::byte>(bits & 0xffU));
    bytes_.push_back(static_cast<std::byte>(bits >> 8));
  }

  std::vector<std::byte> bytes_;
  QuantizedMatrix matrix_;
};

inline std::vector<float> random_floats(std::int64_t n, std::uint32_t seed, float deviation = 1.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, deviation);
  std::vector<float> x(static_cast<std::size_t>(n));
  for (float& v : x) v = normal(random);
  return x;
}

}  // namespace lily::testing
