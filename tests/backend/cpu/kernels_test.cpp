// Every kernel on every instruction set of this machine, against plain code in double.
#include "backend/cpu/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>

#include "backend/cpu/isa.h"
#include "backend/cpu/quantized_memory.h"
#include "base/bf16.h"
#include "tests/backend/quantized_matrix.h"

namespace lily::cpu {
namespace {

using lily::testing::random_floats;
using lily::testing::RandomMatrix;

constexpr float kEps = 1e-6F;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

class KernelTest : public ::testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& k_ = *GetParam();
};
INSTANTIATE_TEST_SUITE_P(Isa, KernelTest, ::testing::ValuesIn(usable_kernels()),
                         [](const auto& test) { return std::string(test.param->isa); });

// ---- products ----

/// Whether prompts' products are of bf16, rather than of integers.
bool multiplies_bf16(const Kernels& kernels) {
  return std::string(kernels.isa) == "amx";
}

/// Activations of some tokens in all the forms kernels read, and what the codes stand for.
struct Activations {
  Activations(const Kernels& kernels, std::int64_t tokens, std::int64_t in, bool by_group, std::uint32_t seed)
      : tokens_(tokens),
        in_(in),
        by_group_(by_group),
        bf16_(by_group && multiplies_bf16(kernels)),
        values(random_floats(tokens * in, seed)),
        memory(tokens, in),
        rows(memory.rows(tokens)) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      // Groups of very different size, and one of zeros.
      for (std::int64_t c = 0; c < in; ++c) {
        values[at(t * in + c)] *= (c / 64 + t) % 5 == 4 ? 0.0F : static_cast<float>(1 + (c / 64) % 3);
      }
      kernels.quantize({.values = &values[at(t * in)],
                        .out = rows,
                        .token = t,
                        .first_group = 0,
                        .groups = in / 64,
                        .row_groups = in / 64,
                        .by_group = by_group});
    }
  }

  /// What the codes of an activation stand for.
  [[nodiscard]] float quantized(std::int64_t t, std::int64_t c, Precision precision) const {
    const std::int64_t group = c / 64;
    if (bf16_) return bf16_to_f32(rows.bf16.rows[t * in_ + group * 64 + c % 2 * 32 + c % 64 / 2]);
    const std::int64_t slot = by_group_ ? group * tokens_ + t : t * (in_ / 64) + group;
    const std::int64_t place = (by_group_ ? slot * 64 : t * in_ + group * 64) + c % 64;
    const int high = rows.high.natural[place];
    const int code = precision == Precision::kFine ? 256 * high + rows.low.natural[place] : high;
    return rows.factors(precision).scales[slot] * static_cast<float>(code);
  }

  std::int64_t tokens_;
  std::int64_t in_;
  bool by_group_;
  bool bf16_;
  std::vector<float> values;
  QuantizedMemory memory;
  QuantizedRows rows;
};

void expect_quantized_group(const Activations& x, std::int64_t t, std::int64_t g, Precision precision) {
  const std::int64_t slot = x.by_group_ ? g * x.tokens_ + t : t * (x.in_ / 64) + g;
  const float scale = x.rows.factors(precision).scales[slot];
  // The coarse code is the fine one rounded once more: off by a 512th of a step at most.
  const float bound = (precision == Precision::kFine ? 0.5001F : 0.503F) * scale;
  double sum = 0;
  for (std::int64_t c = 0; c < 64; ++c) {
    const float code = x.quantized(t, g * 64 + c, precision);
    EXPECT_LE(std::abs(code - x.values[at(t * x.in_ + g * 64 + c)]), bound);
    sum += code;
    const std::int64_t natural = (x.by_group_ ? slot * 64 : t * x.in_ + g * 64) + c;
    const std::int64_t half = c % 2 == 0 ? 0 : (x.by_group_ ? 32 : x.in_ / 2);
    const std::int64_t split = (x.by_group_ ? slot * 64 : t * x.in_ + g * 32) + half + c / 2;
    EXPECT_EQ(x.rows.high.split[split], x.rows.high.natural[natural]);
    EXPECT_EQ(x.rows.low.split[split], x.rows.low.natural[natural]);
  }
  EXPECT_NEAR(x.rows.factors(precision).sums[slot], sum, 1e-5 * (64 * scale + std::abs(sum)));
}

TEST_P(KernelTest, QuantizeRoundsToNearestAndSumsWhatItStored) {
  for (const bool by_group : {false, true}) {
    const Activations x(k_, 3, 192, by_group, 7);
    if (x.bf16_) continue;  // the next test's
    for (std::int64_t t = 0; t < 3; ++t) {
      for (std::int64_t g = 0; g < 3; ++g) {
        expect_quantized_group(x, t, g, Precision::kCoarse);
        expect_quantized_group(x, t, g, Precision::kFine);
      }
    }
  }
}

TEST_P(KernelTest, ActivationsInBf16AreRoundedToNearestAndTransposed) {
  if (!multiplies_bf16(k_)) return;
  const Activations x(k_, 19, 192, true, 7);
  for (std::int64_t t = 0; t < 19; ++t) {
    for (std::int64_t c = 0; c < 192; ++c) {
      EXPECT_EQ(x.quantized(t, c, Precision::kFine), bf16_to_f32(f32_to_bf16(x.values[at(t * 192 + c)])));
    }
    for (std::int64_t pair = 0; pair < 96; ++pair) {
      const std::uint16_t* two = x.rows.bf16.rows + t * 192 + pair * 2;
      EXPECT_EQ(x.rows.bf16.words[(t / 16 * 96 + pair) * 16 + t % 16], two[0] | std::uint32_t{two[1]} << 16);
    }
  }
}

enum class Route { kDecode, kPrefill, kExact };

struct Product {
  const Kernels& kernels;
  Route route;
  const RandomMatrix& matrix;
  Activations& x;
  Precision precision = Precision::kFine;
  std::vector<float> scratch = {};

  /// The arguments for all rows and tokens, into `out` [tokens, out].
  MatmulArgs args(float* out) {
    const QuantizedMatrix m = matrix.view();
    scratch.resize(at(matmul_scratch(m.in)));
    return {.weight = m.weight,
            .scales = m.scales,
            .biases = m.biases,
            .in = m.in,
            .bits = m.bits,
            .group_size = m.group_size,
            .row_begin = 0,
            .row_end = m.out,
            .values = x.values.data(),
            .quantized = x.rows,
            .precision = precision,
            .tokens = nullptr,
            .count = x.tokens_,
            .out = out,
            .out_stride = m.out,
            .out_origin = 0,
            .out_rows = nullptr,
            .factors = nullptr,
            .accumulate = false,
            .scratch = scratch.data()};
  }
  void run(const MatmulArgs& a) const {
    switch (route) {
      case Route::kDecode:
        return kernels.matmul_decode(a);
      case Route::kPrefill:
        return kernels.matmul_prefill(a);
      case Route::kExact:
        return kernels.matmul_exact(a);
    }
  }
};

/// Largest error of the product relative to what f32 sums of that many terms may lose.
void expect_product(Product& product) {
  const QuantizedMatrix m = product.matrix.view();
  const std::int64_t tokens = product.x.tokens_;
  std::vector<float> y(at(tokens * m.out), -1e30F);
  product.run(product.args(y.data()));
  for (std::int64_t r = 0; r < m.out; ++r) {
    std::vector<float> w = product.matrix.row(0, r);
    if (product.x.bf16_) {
      for (float& v : w) v = bf16_to_f32(f32_to_bf16(v));
    }
    for (std::int64_t t = 0; t < tokens; ++t) {
      double sum = 0;
      double magnitude = 0;  // of the terms that are really added: codes times scales, and biases
      for (std::int64_t c = 0; c < m.in; ++c) {
        const double x = product.route == Route::kExact ? product.x.values[at(t * m.in + c)]
                                                        : product.x.quantized(t, c, product.precision);
        sum += x * w[at(c)];
        magnitude += std::abs(x) * 4.0 / std::sqrt(static_cast<double>(m.in));
      }
      ASSERT_NEAR(y[at(t * m.out + r)], sum, 1e-6 * magnitude + 1e-6) << "row " << r << " token " << t;
    }
  }
}

struct Shape {
  std::int64_t out;
  std::int64_t in;
};

TEST_P(KernelTest, ProductsMatchPlainCodeAtEveryEdge) {
  for (const Route route : {Route::kDecode, Route::kPrefill, Route::kExact}) {
    for (const int bits : {4, 8}) {
      for (const Shape s : {Shape{1, 64}, {16, 64}, {17, 512}, {33, 192}, {5, 1088}, {33, 2048}}) {
        for (const std::int64_t tokens : {1, 2, 3, 4, 5, 7, 8, 9, 16, 17}) {
          const RandomMatrix matrix(1, s.out, s.in, bits,
                                    static_cast<std::uint32_t>(s.out * 31 + s.in + bits));
          Activations x(k_, tokens, s.in, route == Route::kPrefill, static_cast<std::uint32_t>(tokens));
          for (const Precision precision : {Precision::kCoarse, Precision::kFine}) {
            Product product{k_, route, matrix, x, precision};
            SCOPED_TRACE(::testing::Message() << "route " << static_cast<int>(route) << " bits " << bits
                                              << " out " << s.out << " in " << s.in << " tokens " << tokens
                                              << " precision " << static_cast<int>(precision));
            expect_product(product);
          }
        }
      }
    }
  }
}

// More tokens than a block of accumulators holds.
TEST_P(KernelTest, PrefillOfManyTokensMatchesPlainCode) {
  const RandomMatrix matrix(1, 20, 128, 4, 3);
  Activations x(k_, 300, 128, true, 4);
  Product product{k_, Route::kPrefill, matrix, x};
  expect_product(product);
}

// The codes' extremes: 255 * 127 and 15 * 127 in every place would overflow 16-bit sums.
TEST_P(KernelTest, ExtremeCodesDoNotSaturate) {
  for (const int bits : {4, 8}) {
    const std::int64_t in = 128;
    std::vector<std::byte> weight(at(in), std::byte{0xff});
    std::vector<std::byte> scales = {std::byte{0x80}, std::byte{0x3f}, std::byte{0x80},
                                     std::byte{0x3f}};  // 1.0
    std::vector<std::byte> biases(4, std::byte{0});
    std::vector<float> values(at(in), 127.0F);
    QuantizedMemory memory(1, in);
    const QuantizedRows rows = memory.rows(1);
    for (const int variant : {0, 1, 2, 3}) {
      const bool prefill = variant % 2 == 1;
      for (const float sign : {1.0F, -1.0F}) {
        for (float& v : values) v = sign * 127.0F;
        k_.quantize({values.data(), rows, 0, 0, 2, 2, prefill});
        float y = 0;
        MatmulArgs a{};
        a.weight = weight.data();
        a.scales = scales.data();
        a.biases = biases.data();
        a.in = in;
        a.bits = bits;
        a.group_size = 64;
        a.row_end = 1;
        a.quantized = rows;
        a.precision = variant < 2 ? Precision::kCoarse : Precision::kFine;
        a.count = 1;
        a.out = &y;
        a.out_stride = 1;
        prefill ? k_.matmul_prefill(a) : k_.matmul_decode(a);
        EXPECT_FLOAT_EQ(y, sign * 127.0F * 128.0F * static_cast<float>((1 << bits) - 1));
      }
    }
  }
}

// A token's bits must not depend on the tokens beside it, nor a row's on how the rows were cut.
TEST_P(KernelTest, ProductsDoNotDependOnCompanyOrCut) {
  constexpr std::int64_t kTokens = 45;
  constexpr std::int64_t kOut = 40;
  for (const Route route : {Route::kDecode, Route::kPrefill, Route::kExact}) {
    for (const int bits : {4, 8}) {
      const RandomMatrix matrix(1, kOut, 320, bits, 11);
      Activations x(k_, kTokens, 320, route == Route::kPrefill, 12);
      for (const Precision precision : {Precision::kCoarse, Precision::kFine}) {
        Product product{k_, route, matrix, x, precision};
        std::vector<float> together(at(kTokens * kOut));
        product.run(product.args(together.data()));

        std::vector<float> apart(together.size());
        for (std::int32_t t = 0; t < kTokens; ++t) {
          for (const auto& [begin, end] : {std::pair<int, int>{0, 16}, {16, 32}, {32, 40}}) {
            MatmulArgs a = product.args(apart.data());
            a.tokens = &t;
            a.out_rows = &t;
            a.count = 1;
            a.row_begin = begin;
            a.row_end = end;
            product.run(a);
          }
        }
        EXPECT_EQ(together, apart) << "route " << static_cast<int>(route) << " bits " << bits << " precision "
                                   << static_cast<int>(precision);

        // Lists of neighbours, from the beginning of a tile of tokens and from the middle of one.
        for (const std::int64_t first : {16, 21}) {
          std::vector<std::int32_t> list(at(kTokens - first));
          std::iota(list.begin(), list.end(), static_cast<std::int32_t>(first));
          std::ranges::fill(apart, 0.0F);
          MatmulArgs a = product.args(apart.data());
          a.tokens = list.data();
          a.out_rows = list.data();
          a.count = std::ssize(list);
          product.run(a);
          const auto begin = first * kOut;
          EXPECT_TRUE(std::equal(together.begin() + begin, together.end(), apart.begin() + begin)) << first;
        }
      }
    }
  }
}

TEST_P(KernelTest, ProductsGatherTokensAndAddWithFactors) {
  for (const Route route : {Route::kDecode, Route::kPrefill, Route::kExact}) {
    const RandomMatrix matrix(1, 18, 128, 4, 21);
    Activations x(k_, 6, 128, route == Route::kPrefill, 22);
    Product product{k_, route, matrix, x};
    std::vector<float> plain(6 * 18);
    product.run(product.args(plain.data()));

    const std::int32_t tokens[] = {4, 0, 5};
    const std::int32_t out_rows[] = {2, 1, 0};
    const float factors[] = {0.5F, -2.0F, 3.0F};
    std::vector<float> mixed(3 * 18, 1.0F);
    MatmulArgs a = product.args(mixed.data());
    a.tokens = tokens;
    a.out_rows = out_rows;
    a.count = 3;
    a.factors = factors;
    product.run(a);
    a.factors = nullptr;
    a.accumulate = true;
    product.run(a);
    for (int i = 0; i < 3; ++i) {
      for (int r = 0; r < 18; ++r) {
        const float y = plain[at(tokens[i] * 18 + r)];
        EXPECT_NEAR(mixed[at(out_rows[i] * 18 + r)], 1.0F + factors[i] * y + y, 1e-4F);
      }
    }
  }
}

// Every format that checkpoints come in, at every edge of the exact products.
TEST_P(KernelTest, ExactProductsTakeEveryFormat) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group_size : {32, 64, 128}) {
      for (const Shape s : {Shape{1, 128}, {5, 384}, {17, 1152}}) {
        const RandomMatrix matrix(1, s.out, s.in, bits, static_cast<std::uint32_t>(s.in + bits), 1.0F,
                                  group_size);
        for (const std::int64_t tokens : {1, 2, 3, 4, 9}) {
          Activations x(k_, tokens, s.in, false, static_cast<std::uint32_t>(tokens));
          Product product{k_, Route::kExact, matrix, x};
          SCOPED_TRACE(::testing::Message() << "bits " << bits << " group " << group_size << " out " << s.out
                                            << " in " << s.in << " tokens " << tokens);
          expect_product(product);
        }
      }
    }
  }
}

TEST_P(KernelTest, DequantizeIsExactInEveryFormat) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group_size : {32, 64, 128}) {
      const RandomMatrix matrix(1, 3, 384, bits, 31, 1.0F, group_size);
      const QuantizedMatrix m = matrix.view();
      std::vector<float> w(384);
      for (std::int64_t r = 0; r < 3; ++r) {
        k_.dequantize({.weight = m.weight + r * m.row_bytes(),
                       .scales = m.scales + r * m.groups() * 2,
                       .biases = m.biases + r * m.groups() * 2,
                       .in = 384,
                       .bits = bits,
                       .group_size = group_size,
                       .out = w.data()});
        EXPECT_EQ(w, matrix.row(0, r)) << bits << " bits, groups of " << group_size << ", row " << r;
      }
    }
  }
}

// ---- rows ----

TEST_P(KernelTest, RmsNorm) {
  for (const std::int64_t n : {64, 128, 2048}) {
    const auto x = random_floats(n, 41, 3.0F);
    const auto gain = random_floats(n, 42);
    std::vector<float> y(at(n));
    k_.rms_norm(x.data(), gain.data(), kEps, n, y.data());
    double sum = 0;
    for (const float v : x) sum += static_cast<double>(v) * v;
    const double scale = 1.0 / std::sqrt(sum / static_cast<double>(n) + kEps);
    for (std::int64_t i = 0; i < n; ++i) EXPECT_NEAR(y[at(i)], x[at(i)] * scale * gain[at(i)], 2e-6);
  }
}

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

TEST_P(KernelTest, SwigluAndOutputGateOverTheWholeRange) {
  std::vector<float> gate;
  for (int i = 0; i < 512; ++i) gate.push_back(static_cast<float>(i - 256) * 0.5F);  // -128 to 127.5
  const auto up = random_floats(512, 43);
  std::vector<float> y(512);
  k_.swiglu(gate.data(), up.data(), 512, y.data());
  for (std::size_t i = 0; i < 512; ++i) {
    const double expected = gate[i] * sigmoid(gate[i]) * up[i];
    EXPECT_NEAR(y[i], expected, 1e-6 * std::abs(expected) + 1e-30);
  }
  k_.gate_output(up.data(), 0.25F, gate.data(), 512, y.data());
  for (std::size_t i = 0; i < 512; ++i) {
    const double expected = 0.25 * up[i] * sigmoid(gate[i]);
    EXPECT_NEAR(y[i], expected, 1e-6 * std::abs(expected) + 1e-30);
  }
}

TEST_P(KernelTest, NotANumberIsNotHidden) {
  std::vector<float> gate(64, 1.0F);
  gate[5] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> up(64, 1.0F);
  std::vector<float> y(64);
  k_.swiglu(gate.data(), up.data(), 64, y.data());
  EXPECT_TRUE(std::isnan(y[5]));
  EXPECT_FALSE(std::isnan(y[4]));
}

// ---- K/V rows ----

constexpr KvType kKvTypes[] = {KvType::kF32, KvType::kBf16, KvType::kQ8};

/// Element d of row t of a page's K or V blocks, by the layout that kernels.h describes.
float cached(const std::byte* page, KvType type, bool value, std::int64_t t, std::int64_t d) {
  const std::byte* block = page + t / 16 * kv_block_bytes(type);
  const std::int64_t r = t % 16;
  const std::int64_t n = type == KvType::kF32 ? 1 : (type == KvType::kBf16 ? 2 : 4);
  const std::int64_t word = value ? (d / 16 * (16 / n) + r / n) * 16 + d % 16 : d / n * 16 + r;
  const std::byte* p = block + word * 4 + (value ? r % n : d % n) * (4 / n);
  if (type == KvType::kF32) return load_unaligned<float>(p);
  if (type == KvType::kBf16) return bf16_to_f32(load_unaligned<std::uint16_t>(p));
  const auto scale = load_unaligned<float>(block + 4096 + (d / 64 * 16 + r) * 4);
  return scale * static_cast<float>(static_cast<std::int8_t>(*p));
}

/// What a type may make of x, in a group of 64 whose largest magnitude is `largest`.
float kv_rounding(KvType type, float x, float largest) {
  if (type == KvType::kF32) return 0;
  return type == KvType::kBf16 ? std::abs(x) / 256 : largest / 127 * 0.5001F;
}

TEST_P(KernelTest, StoredKeysAndValuesAreTheRoundedRowsInTheirPlaces) {
  for (const KvType type : kKvTypes) {
    for (const bool value : {false, true}) {
      std::vector<std::byte> page(at(256 * kv_row_bytes(type)));
      std::vector<float> rows;
      for (std::int64_t t = 0; t < 40; ++t) {
        auto row = random_floats(256, static_cast<std::uint32_t>(70 + t), static_cast<float>(1 + t % 3));
        for (std::size_t d = 64; d < 128; ++d)
          row[d] *= t % 5 == 0 ? 0.0F : 20.0F;  // a group of zeros, and outliers
        k_.store_kv({row.data(), type, value, page.data(), t});
        rows.insert(rows.end(), row.begin(), row.end());
      }
      for (std::int64_t t = 0; t < 40; ++t) {
        for (std::int64_t d = 0; d < 256; ++d) {
          float largest = 0;
          for (std::int64_t i = d / 64 * 64; i < d / 64 * 64 + 64; ++i) {
            largest = std::max(largest, std::abs(rows[at(t * 256 + i)]));
          }
          const float x = rows[at(t * 256 + d)];
          ASSERT_NEAR(cached(page.data(), type, value, t, d), x, kv_rounding(type, x, largest))
              << kv_type_name(type) << " row " << t << " element " << d;
        }
      }
    }
  }
}

TEST_P(KernelTest, StoreBf16RoundsToNearestEven) {
  auto x = random_floats(256, 44, 100.0F);
  x[0] = std::numeric_limits<float>::quiet_NaN();
  x[1] = std::bit_cast<float>(0x3f808000U);  // a tie: down to even
  x[2] = std::bit_cast<float>(0x3f818000U);  // a tie: up to even
  x[3] = -0.0F;
  std::vector<std::byte> page(at(256 * kv_row_bytes(KvType::kBf16)));
  k_.store_kv({x.data(), KvType::kBf16, false, page.data(), 0});
  for (std::int64_t i = 0; i < 256; ++i) {
    const float stored = cached(page.data(), KvType::kBf16, false, 0, i);
    EXPECT_EQ(f32_to_bf16(stored), f32_to_bf16(x[at(i)])) << i;
  }
}

TEST_P(KernelTest, HeadNormThenRotation) {
  auto head = random_floats(256, 45, 2.0F);
  const auto gain = random_floats(256, 46);
  std::vector<float> cosine(32);
  std::vector<float> sine(32);
  for (std::size_t j = 0; j < 32; ++j) {
    cosine[j] = std::cos(0.1F * static_cast<float>(j));
    sine[j] = std::sin(0.1F * static_cast<float>(j));
  }
  std::vector<float> expected(256);
  k_.rms_norm(head.data(), gain.data(), kEps, 256, expected.data());
  for (std::size_t j = 0; j < 32; ++j) {
    const float a = expected[j];
    const float b = expected[j + 32];
    expected[j] = a * cosine[j] - b * sine[j];
    expected[j + 32] = b * cosine[j] + a * sine[j];
  }
  k_.head_norm({head.data(), gain.data(), kEps, cosine.data(), sine.data()});
  for (std::size_t i = 0; i < 256; ++i) EXPECT_NEAR(head[i], expected[i], 1e-5F) << i;
}

// ---- gated delta rule ----

/// One key head with its value heads: inputs of some tokens, weights, and state.
struct DeltaCase {
  static constexpr std::int64_t kD = 128;
  DeltaCase(std::int64_t tokens_, std::int64_t heads_) : tokens(tokens_), heads(heads_) {
    width = 2 * kD + 2 * heads * kD + 2 * heads;
    input = random_floats(tokens * width, 51);
    channels = 2 * kD + heads * kD;
    taps = random_floats(4 * channels, 52, 0.5F);
    history = random_floats(3 * channels, 53);
    state = random_floats(heads * kD * kD, 54, 0.1F);
    a_log = random_floats(heads, 55);
    dt_bias = random_floats(heads, 56);
    norm = random_floats(kD, 57);
    out.resize(at(tokens * heads * kD));
  }

  /// Tokens [begin, end) in one call.
  void run(const Kernels& kernels, std::int64_t begin, std::int64_t end) {
    float* x = input.data() + begin * width;
    const std::int64_t v = heads * kD;
    kernels.delta_rule({.tokens = end - begin,
                        .value_heads = heads,
                        .q = x,
                        .k = x + kD,
                        .v = x + 2 * kD,
                        .z = x + 2 * kD + v,
                        .a = x + 2 * kD + 2 * v,
                        .b = x + 2 * kD + 2 * v + heads,
                        .stride = width,
                        .q_taps = taps.data(),
                        .k_taps = taps.data() + kD,
                        .v_taps = taps.data() + 2 * kD,
                        .q_history = history.data(),
                        .k_history = history.data() + kD,
                        .v_history = history.data() + 2 * kD,
                        .history_stride = channels,
                        .a_log = a_log.data(),
                        .dt_bias = dt_bias.data(),
                        .norm = norm.data(),
                        .eps = kEps,
                        .state = state.data(),
                        .out = out.data() + begin * v,
                        .out_stride = v});
  }

  std::int64_t tokens;
  std::int64_t heads;
  std::int64_t width;
  std::int64_t channels;
  std::vector<float> input, taps, history, state, a_log, dt_bias, norm, out;
};

/// Where S[head][key][value] is kept: blocks of 32 value columns.
std::int64_t state_index(std::int64_t head, std::int64_t key, std::int64_t value) {
  return ((head * 4 + value / 32) * 128 + key) * 32 + value % 32;
}

/// The formulas of the model in double, on a copy of the case: fills its out, state and history.
void plain_delta_rule(DeltaCase& c) {
  constexpr std::int64_t kD = DeltaCase::kD;
  std::vector<double> S(c.state.begin(), c.state.end());
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    float* x = &c.input[at(t * c.width)];
    std::vector<double> u(at(c.channels));
    for (std::int64_t ch = 0; ch < c.channels; ++ch) {
      double sum = c.taps[at(3 * c.channels + ch)] * static_cast<double>(x[ch]);
      for (std::int64_t j = 0; j < 3; ++j) {
        sum += c.taps[at(j * c.channels + ch)] * static_cast<double>(c.history[at(j * c.channels + ch)]);
      }
      u[at(ch)] = sum * sigmoid(sum);
      c.history[at(ch)] = c.history[at(c.channels + ch)];
      c.history[at(c.channels + ch)] = c.history[at(2 * c.channels + ch)];
      c.history[at(2 * c.channels + ch)] = x[ch];
    }
    for (std::int64_t part = 0; part < 2; ++part) {  // q, then k
      double sum = 0;
      for (std::int64_t i = 0; i < kD; ++i) sum += u[at(part * kD + i)] * u[at(part * kD + i)];
      const double scale = 1.0 / std::sqrt(sum + 1e-6) * (part == 0 ? 1.0 / std::sqrt(128.0) : 1.0);
      for (std::int64_t i = 0; i < kD; ++i) u[at(part * kD + i)] *= scale;
    }
    for (std::int64_t h = 0; h < c.heads; ++h) {
      const float* gates = x + 2 * kD + 2 * c.heads * kD;
      const double g = -std::exp(c.a_log[at(h)]) * std::log1p(std::exp(gates[h] + c.dt_bias[at(h)]));
      const double beta = sigmoid(gates[c.heads + h]);
      std::vector<double> o(kD);
      for (std::int64_t j = 0; j < kD; ++j) {
        double m = 0;
        for (std::int64_t i = 0; i < kD; ++i) {
          double& s = S[at(state_index(h, i, j))];
          s *= std::exp(g);
          m += s * u[at(kD + i)];
        }
        const double d = beta * (u[at(2 * kD + h * kD + j)] - m);
        for (std::int64_t i = 0; i < kD; ++i) {
          double& s = S[at(state_index(h, i, j))];
          s += u[at(kD + i)] * d;
          o[at(j)] += s * u[at(i)];
        }
      }
      double square = 0;
      for (const double v : o) square += v * v;
      const double scale = 1.0 / std::sqrt(square / kD + kEps);
      for (std::int64_t j = 0; j < kD; ++j) {
        const double z = x[2 * kD + c.heads * kD + h * kD + j];
        c.out[at((t * c.heads + h) * kD + j)] =
            static_cast<float>(o[at(j)] * scale * c.norm[at(j)] * z * sigmoid(z));
      }
    }
  }
  std::ranges::transform(S, c.state.begin(), [](double v) { return static_cast<float>(v); });
}

void expect_close(const std::vector<float>& got, const std::vector<float>& expected, float bound) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], bound) << i;
}

TEST_P(KernelTest, DeltaRuleMatchesTheFormulas) {
  for (const std::int64_t heads : {1, 2, 3, 4}) {
    for (const std::int64_t tokens : {1, 2, 3, 4, 5, 70}) {
      DeltaCase expected(tokens, heads);
      DeltaCase got = expected;
      plain_delta_rule(expected);
      got.run(k_, 0, tokens);
      expect_close(got.out, expected.out, 5e-4F);
      expect_close(got.state, expected.state, 5e-5F);
      EXPECT_EQ(got.history, expected.history) << tokens << " tokens";
    }
  }
}

TEST_P(KernelTest, DeltaRuleGivesEqualBitsHoweverItIsCut) {
  DeltaCase whole(70, 2);
  DeltaCase cut = whole;
  whole.run(k_, 0, 70);
  std::int64_t begin = 0;
  for (const std::int64_t end : {1, 2, 4, 7, 64, 70}) {
    cut.run(k_, begin, end);
    begin = end;
  }
  EXPECT_EQ(whole.out, cut.out);
  EXPECT_EQ(whole.state, cut.state);
  EXPECT_EQ(whole.history, cut.history);
}

// ---- attention ----

struct AttentionCase {
  AttentionCase(const Kernels& kernels, std::int64_t length, KvType kv_type) : type(kv_type) {
    const std::int64_t pages = (length + 255) / 256;
    for (std::int64_t p = 0; p < pages; ++p) order.push_back(static_cast<std::int32_t>(pages - 1 - p));
    // What lies beyond the sequence must never matter: all bits set is a NaN.
    keys.assign(at(pages * page_bytes()), std::byte{0xff});
    values = keys;
    const auto k = random_floats(length * 256, 61, 1.0F);
    const auto v = random_floats(length * 256, 62, 1.0F);
    for (std::int64_t t = 0; t < length; ++t) {
      kernels.store_kv({&k[at(t * 256)], type, false, keys.data() + page(t), t % 256});
      kernels.store_kv({&v[at(t * 256)], type, true, values.data() + page(t), t % 256});
    }
  }
  [[nodiscard]] std::int64_t page_bytes() const { return 256 * kv_row_bytes(type); }
  [[nodiscard]] std::int64_t page(std::int64_t t) const { return order[at(t / 256)] * page_bytes(); }
  [[nodiscard]] float key(std::int64_t t, std::int64_t d) const {
    return cached(keys.data() + page(t), type, false, t % 256, d);
  }
  [[nodiscard]] float value(std::int64_t t, std::int64_t d) const {
    return cached(values.data() + page(t), type, true, t % 256, d);
  }

  KvType type;
  std::vector<std::byte> keys, values;
  std::vector<std::int32_t> order;  ///< pages in reverse
};

struct AttentionRun {
  std::vector<float> queries, largest, total, sums;
  std::vector<std::int64_t> positions;

  AttentionRun(std::vector<float> q, std::vector<std::int64_t> p)
      : queries(std::move(q)), positions(std::move(p)) {
    const std::size_t padded = (positions.size() + 7) / 8 * 8;
    queries.resize(padded * 256);
    sums.resize(padded * 256);
    largest.assign(positions.size(), -std::numeric_limits<float>::infinity());
    total.assign(positions.size(), 0.0F);
  }
  void run(const Kernels& kernels, const AttentionCase& c, std::int64_t begin, std::int64_t end) {
    std::vector<float> scratch(at(attend_scratch()));
    attend_of(kernels, c.type)({.queries = queries.data(),
                                .count = static_cast<std::int64_t>(positions.size()),
                                .positions = positions.data(),
                                .keys = c.keys.data(),
                                .values = c.values.data(),
                                .page_stride = c.page_bytes(),
                                .pages = c.order.data(),
                                .begin = begin,
                                .end = end,
                                .largest = largest.data(),
                                .total = total.data(),
                                .sums = sums.data(),
                                .scratch = scratch.data()});
  }
  [[nodiscard]] std::vector<float> result(std::size_t i) const {
    std::vector<float> o(256);
    for (std::size_t d = 0; d < 256; ++d) o[d] = sums[i * 256 + d] / total[i];
    return o;
  }
};

std::vector<float> plain_attention(const AttentionCase& c, const float* q, std::int64_t position) {
  std::vector<double> p(at(position + 1));
  double largest = -1e300;
  for (std::int64_t t = 0; t <= position; ++t) {
    for (std::int64_t d = 0; d < 256; ++d) p[at(t)] += q[d] * static_cast<double>(c.key(t, d));
    largest = std::max(largest, p[at(t)]);
  }
  double total = 0;
  std::vector<double> o(256);
  for (std::int64_t t = 0; t <= position; ++t) {
    const double weight = std::exp(p[at(t)] - largest);
    total += weight;
    for (std::int64_t d = 0; d < 256; ++d) o[at(d)] += weight * c.value(t, d);
  }
  std::vector<float> result(256);
  for (std::size_t d = 0; d < 256; ++d) result[d] = static_cast<float>(o[d] / total);
  return result;
}

/// How far attention may be from the exact one of the cached rows. Dot products of the cache's own type round
/// queries and probabilities: to 8 bits (bf16), to 16 (int8). Scores are sums of 256 products with a
/// deviation of up to 30.
float attention_bound(const Kernels& kernels, KvType type) {
  const std::string isa = kernels.isa;
  if (type == KvType::kBf16 && (isa == "avx512bf16" || isa == "amx")) return 2e-2F;
  if (type == KvType::kQ8 && (isa.starts_with("avx512") || isa == "amx")) return 1e-3F;
  return 3e-5F;
}

TEST_P(KernelTest, AttentionMatchesPlainSoftmax) {
  for (const KvType type : kKvTypes) {
    for (const std::int64_t length : {1, 2, 15, 16, 17, 63, 64, 65, 200, 256, 257, 600}) {
      const AttentionCase c(k_, length, type);
      std::vector<std::int64_t> positions;
      for (std::int64_t p = std::max<std::int64_t>(0, length - 5); p < length; ++p) {
        positions.insert(positions.end(), 3, p);  // three query heads a position
      }
      // Scores of deviation 3 with some far outliers: the running maximum moves.
      auto queries = random_floats(static_cast<std::int64_t>(positions.size()) * 256, 63, 3.0F / 16.0F);
      for (std::size_t d = 0; d < 256; ++d) queries[d] *= 10.0F;
      AttentionRun run(queries, positions);
      run.run(k_, c, 0, length);
      for (std::size_t i = 0; i < positions.size(); ++i) {
        SCOPED_TRACE(::testing::Message() << kv_type_name(type) << " length " << length << " query " << i);
        expect_close(run.result(i), plain_attention(c, &queries[i * 256], positions[i]),
                     attention_bound(k_, type));
      }
    }
  }
}

TEST_P(KernelTest, AttentionGivesEqualBitsAloneAndInCompany) {
  for (const KvType type : kKvTypes) {
    const AttentionCase c(k_, 500, type);
    std::vector<std::int64_t> positions;
    for (std::int64_t p = 440; p < 500; ++p) positions.push_back(p);
    const auto queries = random_floats(60 * 256, 64, 0.3F);
    AttentionRun together(queries, positions);
    together.run(k_, c, 0, 500);
    for (std::size_t i = 0; i < 60; i += 7) {
      const std::vector<float> query(queries.begin() + static_cast<std::ptrdiff_t>(i * 256),
                                     queries.begin() + static_cast<std::ptrdiff_t>((i + 1) * 256));
      AttentionRun alone(query, {positions[i]});
      alone.run(k_, c, 0, positions[i] + 1);
      EXPECT_EQ(alone.result(0), together.result(i)) << i;
      AttentionRun stepwise(query, {positions[i]});
      stepwise.run(k_, c, 0, 128);
      stepwise.run(k_, c, 128, positions[i] + 1);
      EXPECT_EQ(stepwise.result(0), together.result(i)) << i;
    }
  }
}

// ---- the peak

// Of ones with ones, every multiply-add adds one.
TEST_P(KernelTest, RegistersMultiplyAsOftenAsIsCounted) {
  for (const auto multiply : {k_.multiply_registers, k_.multiply_registers_exact}) {
    const Multiplied done = multiply(1024);
    EXPECT_GT(done.count, 0);
    EXPECT_EQ(done.sum, static_cast<double>(done.count));
    EXPECT_EQ(multiply(512).count, done.count / 2);
  }
}

}  // namespace
}  // namespace lily::cpu
