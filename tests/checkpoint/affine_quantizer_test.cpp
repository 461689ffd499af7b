#include "checkpoint/affine_quantizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/bf16.h"

namespace lily {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

struct Packed {
  std::vector<std::byte> codes;
  std::vector<std::uint16_t> scales;
  std::vector<std::uint16_t> biases;
  bool finite = false;

  [[nodiscard]] float scale(std::size_t group = 0) const { return bf16_to_f32(scales[group]); }
  [[nodiscard]] float bias(std::size_t group = 0) const { return bf16_to_f32(biases[group]); }
  [[nodiscard]] std::vector<std::uint32_t> words() const {
    std::vector<std::uint32_t> words;
    for (std::size_t i = 0; i < codes.size(); i += 4) {
      words.push_back(load_unaligned<std::uint32_t>(&codes[i]));
    }
    return words;
  }
  [[nodiscard]] std::vector<unsigned> values(int bits) const {
    std::vector<unsigned> values;
    for (std::size_t bit = 0; bit < codes.size() * 8; bit += static_cast<std::size_t>(bits)) {
      unsigned code = 0;
      for (std::size_t b = 0; b < static_cast<std::size_t>(bits); ++b) {
        code |= ((static_cast<unsigned>(codes[(bit + b) / 8]) >> ((bit + b) % 8)) & 1U) << b;
      }
      values.push_back(code);
    }
    return values;
  }
};

Packed quantized(const std::vector<float>& row, const QuantizationSpec& spec,
                 QuantizerRounding rounding = QuantizerRounding::kMetal) {
  Packed packed;
  packed.codes.resize(row.size() * static_cast<std::size_t>(spec.bits) / 8);
  packed.scales.resize(row.size() / static_cast<std::size_t>(spec.group_size));
  packed.biases.resize(packed.scales.size());
  packed.finite = quantize_row(row, spec, rounding, {packed.codes, packed.scales, packed.biases});
  return packed;
}

std::vector<float> ramp() {
  std::vector<float> row;
  for (int i = 0; i < 64; ++i) row.push_back(-16.0F + 0.5F * static_cast<float>(i));
  return row;
}

// What MLX 0.32.0 made of these rows on Metal. The ramp's third value is an exact half.
TEST(AffineQuantizer, AgreesWithMlxOnMetal) {
  const Packed four = quantized(ramp(), {.bits = 4});
  EXPECT_EQ(four.scale(), 2.0F);
  EXPECT_EQ(four.bias(), -16.0F);
  EXPECT_THAT(four.words(), ElementsAre(571543808U, 1144206114U, 1716868420U, 2289530726U, 2862193032U,
                                        3434855338U, 4007517644U, 4294967278U));
  const Packed eight = quantized(ramp(), {.bits = 8});
  EXPECT_EQ(eight.scale(), 0.123046875F);
  EXPECT_EQ(eight.bias(), -16.0F);
  EXPECT_THAT(eight.words(),
              ElementsAre(201851904U, 471340048U, 757671201U, 1027159345U, 1296647489U, 1566135633U,
                          1852466786U, 2121954930U, 2391443074U, 2660931218U, 2947262371U, 3216750515U,
                          3486238659U, 3755726803U, 4042057956U, 4294768884U));
  const Packed constant = quantized(std::vector<float>(64, 3.25F), {.bits = 4});
  EXPECT_EQ(constant.scale(), -1.0011717677116394e-07F);
  EXPECT_EQ(constant.bias(), 3.25F);
  EXPECT_THAT(constant.values(4), Each(0U));
}

TEST(AffineQuantizer, TheTwoImplementationsDifferOnTiesAndNegativeGroups) {
  EXPECT_EQ(quantized(ramp(), {.bits = 4}, QuantizerRounding::kMetal).values(4)[1], 0U);
  EXPECT_EQ(quantized(ramp(), {.bits = 4}, QuantizerRounding::kMetal).values(4)[2], 1U);
  EXPECT_EQ(quantized(ramp(), {.bits = 4}, QuantizerRounding::kCpu).values(4)[2], 0U);
  // From -16 to -8: on Metal the range reaches to 0, and so is twice as wide.
  std::vector<float> negative;
  for (int i = 0; i < 64; ++i) negative.push_back(-16.0F + 0.125F * static_cast<float>(i));
  EXPECT_GT(quantized(negative, {.bits = 4}, QuantizerRounding::kMetal).scale(),
            1.9F * quantized(negative, {.bits = 4}, QuantizerRounding::kCpu).scale());
}

// Every format gives back what went in to within half a step, and a zero exactly where the range holds one.
TEST(AffineQuantizer, EveryFormatStaysWithinHalfAStep) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group_size : {32, 64, 128}) {
      std::vector<float> row(256);
      for (float& w : row) w = bf16_to_f32(f32_to_bf16(normal(random)));
      row[7] = 0;
      for (const QuantizerRounding rounding : {QuantizerRounding::kMetal, QuantizerRounding::kCpu}) {
        const Packed packed = quantized(row, {.bits = bits, .group_size = group_size}, rounding);
        ASSERT_TRUE(packed.finite);
        const auto codes = packed.values(bits);
        ASSERT_EQ(codes.size(), row.size());
        for (std::size_t i = 0; i < row.size(); ++i) {
          const std::size_t group = i / static_cast<std::size_t>(group_size);
          const float step = std::abs(packed.scale(group));
          const float w = packed.scale(group) * static_cast<float>(codes[i]) + packed.bias(group);
          // bf16 scale and bias: 2^-9 of either, the scale's for every code. The far end may be a step away,
          // since the scale is stretched to meet zero.
          EXPECT_NEAR(w, row[i], step * (1.01F + static_cast<float>(codes[i]) / 256) + 0.02F)
              << bits << " bits, groups of " << group_size << ", " << i;
        }
      }
    }
  }
}

TEST(AffineQuantizer, RefusesWhatIsNotFinite) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    for (const std::size_t place : {0U, 31U, 63U}) {
      std::vector<float> row(64, 1.0F);
      row[place] = bad;
      EXPECT_FALSE(quantized(row, {.bits = 4}).finite);
    }
  }
}

}  // namespace
}  // namespace lily
