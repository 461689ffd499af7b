// The whole backend: against the reference, block by block, and what it promises about company, threads and
// state.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "backend/cpu/isa.h"
#include "backend/cpu/kernels.h"
#include "tests/backend/promises.h"

namespace lily {
namespace {

using testing::dense_sizes;
using testing::kPromiseLimits;
using testing::make;
using testing::mixed_sizes;
using testing::ModelSize;
using testing::odd_sizes;
using testing::random_tokens;
using testing::RandomModel;
using testing::relative_error;
using testing::run_conversation;
using testing::run_step;
using testing::Runs;
using testing::Timeline;

BackendOptions cpu(bool exact, int threads = 2, const std::string& isa = "auto") {
  return {.name = "cpu", .exact = exact, .threads = threads, .isa = isa};
}

std::vector<ModelSize> all_sizes() {
  std::vector<ModelSize> sizes = odd_sizes();
  for (const auto& more : {mixed_sizes(), dense_sizes()}) sizes.insert(sizes.end(), more.begin(), more.end());
  return sizes;
}

TEST(CpuBackend, ExactMatchesTheReferenceOnEveryIsa) {
  for (const ModelSize& size : all_sizes()) {
    const RandomModel model(size);
    const auto reference = make(model, {.name = "reference"});
    const Runs expected = run_conversation(*reference, model, {});
    for (const cpu::Kernels* kernels : cpu::usable_kernels()) {
      const auto backend = make(model, cpu(true, 2, kernels->isa));
      const Runs got = run_conversation(*backend, model, {});
      for (std::size_t i = 0; i < got.residuals.size(); ++i) {
        EXPECT_LT(relative_error(got.residuals[i], expected.residuals[i]), 2e-3)
            << kernels->isa << " block " << i;
      }
      for (std::size_t i = 0; i < got.logits.size(); ++i) {
        if (expected.logits[i].empty()) continue;
        EXPECT_LT(relative_error(got.logits[i], expected.logits[i]), 3e-3) << kernels->isa << " step " << i;
      }
    }
  }
}

TEST(CpuBackend, Int8StaysCloseToTheReferenceOnEveryIsa) {
  for (const ModelSize& size : all_sizes()) {
    const RandomModel model(size);
    const auto reference = make(model, {.name = "reference"});
    const Runs expected = run_conversation(*reference, model, {});
    for (const cpu::Kernels* kernels : cpu::usable_kernels()) {
      const auto backend = make(model, cpu(false, 2, kernels->isa));
      const Runs got = run_conversation(*backend, model, {});
      for (std::size_t i = 0; i < got.logits.size(); ++i) {
        if (expected.logits[i].empty()) continue;
        // An error of 0.5 / 127 of a group's largest element, over a few products in a row.
        EXPECT_LT(relative_error(got.logits[i], expected.logits[i]), 0.06) << kernels->isa << " step " << i;
      }
    }
  }
}

struct Mode {
  bool exact;
  const char* kv_type;
};
void PrintTo(const Mode& mode, std::ostream* out) {
  *out << (mode.exact ? "exact_" : "int8_") << mode.kv_type;
}

class CpuBackendMode : public ::testing::TestWithParam<std::tuple<Mode, const cpu::Kernels*>> {
 protected:
  static bool exact() { return std::get<0>(GetParam()).exact; }
  static BackendOptions options(int threads) {
    const auto& [mode, kernels] = GetParam();
    BackendOptions options = cpu(mode.exact, threads, kernels->isa);
    options.kv_type = mode.kv_type;
    return options;
  }
};
std::string mode_name(const ::testing::TestParamInfo<CpuBackendMode::ParamType>& test) {
  const auto& [mode, kernels] = test.param;
  return ::testing::PrintToString(mode) + "_" + kernels->isa;
}
INSTANTIATE_TEST_SUITE_P(Modes, CpuBackendMode,
                         ::testing::Combine(::testing::Values(Mode{true, "auto"}, Mode{false, "auto"},
                                                              Mode{false, "q8"}),
                                            ::testing::ValuesIn(cpu::usable_kernels())),
                         mode_name);

TEST_P(CpuBackendMode, EqualBitsForAnyNumberOfThreads) {
  for (const ModelSize& size : {odd_sizes()[2], dense_sizes()[2]}) {
    const RandomModel model(size);
    const auto one = make(model, options(1));
    const Runs expected = run_conversation(*one, model, {});
    for (const int threads : {2, 3}) {
      const auto several = make(model, options(threads));
      const Runs got = run_conversation(*several, model, {});
      EXPECT_EQ(got.residuals, expected.residuals) << threads;
      EXPECT_EQ(got.logits, expected.logits) << threads;
    }
  }
}

TEST_P(CpuBackendMode, EqualBitsAloneAndInCompany) {
  for (const ModelSize& size : {ModelSize{}, mixed_sizes()[1], dense_sizes()[0]}) {
    const RandomModel model(size);
    testing::expect_equal_bits_in_company(model, [&] { return make(model, options(2)); }, 20);
  }
}

// Long enough for several pages; cuts at one, the convolution's window, odd places and the prefill grid.
TEST_P(CpuBackendMode, ChunksAgreeWithTokenByToken) {
  const RandomModel model({.hidden = 64, .vocab = 40});
  const auto backend = make(model, options(2));
  const auto a = random_tokens(270, 40, 3);
  const std::span<const TokenId> x(a);
  Timeline steps{.pages = {0, 1}, .slot = 0};
  std::vector<float> expected;
  for (std::size_t i = 0; i < x.size(); ++i) {
    expected = run_step(*backend, model.weights(), {steps.extend(x.subspan(i, 1), Logits::kLast)});
  }
  for (const std::size_t chunk : {2, 3, 7, 64, 128}) {
    backend->zero_slot(1);
    Timeline chunks{.pages = {2, 3}, .slot = 1};
    std::vector<float> got;
    for (std::size_t i = 0; i < x.size(); i += chunk) {
      got = run_step(*backend, model.weights(),
                     {chunks.extend(x.subspan(i, std::min(chunk, x.size() - i)), Logits::kLast)});
    }
    EXPECT_LT(relative_error(got, expected), exact() ? 3e-3 : 0.06) << chunk;
  }
}

// The same prompt cut at different places: prefill alone is bit-identical, since no kernel looks across rows.
TEST_P(CpuBackendMode, PrefillGivesEqualBitsHoweverItIsCut) {
  const RandomModel model({});
  const auto backend = make(model, options(2));
  const auto a = random_tokens(120, 150, 4);
  const std::span<const TokenId> x(a);
  Timeline whole{.pages = {0}, .slot = 0};
  const auto expected = run_step(*backend, model.weights(), {whole.extend(x, Logits::kLast)});
  Timeline cut{.pages = {1}, .slot = 1};
  run_step(*backend, model.weights(), {cut.extend(x.subspan(0, 64), Logits::kNone)});
  run_step(*backend, model.weights(), {cut.extend(x.subspan(64, 9), Logits::kNone)});
  EXPECT_EQ(run_step(*backend, model.weights(), {cut.extend(x.subspan(73), Logits::kLast)}), expected);
}

// A last chunk of one row is prefill like the rest of its prompt.
TEST_P(CpuBackendMode, PrefillOfOneRowGivesTheBitsOfALongerOne) {
  const RandomModel model({});
  const auto backend = make(model, options(2));
  const auto a = random_tokens(20, 150, 7);
  const std::span<const TokenId> x(a);
  Timeline whole{.pages = {0}, .slot = 0};
  const auto expected = run_step(*backend, model.weights(), {whole.extend(x, Logits::kLast)});
  Timeline rows{.pages = {1}, .slot = 1};
  std::vector<float> got;
  for (std::size_t i = 0; i < x.size(); ++i) {
    got = run_step(*backend, model.weights(), {rows.extend(x.subspan(i, 1), Logits::kLast, Phase::kPrefill)});
  }
  EXPECT_EQ(got, expected);
}

TEST_P(CpuBackendMode, CopiedStateGoesOnLikeItsOriginal) {
  const RandomModel model({});
  testing::expect_copied_state_to_go_on(model, [&] { return make(model, options(2)); });
}

TEST_P(CpuBackendMode, ReusedSlotsAndPagesHoldNothingOfTheirPast) {
  const RandomModel model({});
  testing::expect_reused_state_to_be_fresh(model, [&] { return make(model, options(2)); });
}

TEST(CpuBackend, PagesAreAsLargeAsTheirType) {
  const RandomModel model({.attention = {true, false, true}, .query_heads = 4, .kv_heads = 2});
  for (const auto& [kv_type, row_bytes] :
       {std::pair{"f32", 1024}, {"bf16", 512}, {"auto", 512}, {"q8", 272}}) {
    const auto backend = make(model, {.name = "cpu", .kv_type = kv_type});
    EXPECT_EQ(backend->page_bytes(), 2 * 2 * 2 * 256 * row_bytes) << kv_type;  // layers, K and V, heads, rows
  }
}

TEST(CpuBackend, DoesWithoutEachOfItsOptimisations) {
  const RandomModel model(odd_sizes().front());
  const auto reference = make(model, {.name = "reference"});
  const Runs expected = run_conversation(*reference, model, {});
  const auto whole = make(model, cpu(false));
  std::vector<std::string> names;
  for (const Ablation& ablation : whole->ablations()) {
    names.push_back(ablation.name);
    BackendOptions options = cpu(false);
    options.without = ablation.name;
    const auto backend = make(model, options);
    EXPECT_NE(backend->description(), whole->description()) << ablation.name;
    for (const Ablation& left : backend->ablations()) EXPECT_NE(left.name, ablation.name);
    const Runs got = run_conversation(*backend, model, {});
    for (std::size_t i = 0; i < got.logits.size(); ++i) {
      if (expected.logits[i].empty()) continue;
      EXPECT_LT(relative_error(got.logits[i], expected.logits[i]), 0.2) << ablation.name << " step " << i;
    }
  }
  for (const char* name : {"integer-activations", "threads", "bf16-kv"}) {
    EXPECT_NE(std::ranges::find(names, name), names.end()) << name;
  }
  EXPECT_EQ(names.size(), 3 + cpu::usable_kernels().size() - 1);
}

TEST(MakeBackend, RefusesToDoWithoutWhatItDoesNotHave) {
  const RandomModel model(odd_sizes().front());
  for (const char* name : {"cpu", "reference"}) {
    const auto made = make_backend({.name = name, .without = "magic"}, model.weights(), kPromiseLimits);
    ASSERT_FALSE(made.ok());
    EXPECT_NE(made.error().message.find("'magic'"), std::string::npos) << made.error().message;
  }
}

TEST(MakeBackend, RefusesWhatItCannotRun) {
  const RandomModel model({});
  const auto error_of = [&](const BackendOptions& options) {
    return make_backend(options, model.weights(), kPromiseLimits).error();
  };
  EXPECT_EQ(error_of({.name = "tpu"}).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of(cpu(false, 1, "mmx")).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of(cpu(false, -1)).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of({.name = "cpu", .kv_type = "q3"}).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of({.name = "reference", .kv_type = "q8"}).code, ErrorCode::kUnsupported);

  ModelWeights odd = model.weights();
  odd.shapes.linear_value_heads = 16 * odd.shapes.linear_key_heads;
  EXPECT_EQ(make_backend(cpu(false), odd, kPromiseLimits).error().code, ErrorCode::kUnsupported);
}

TEST(MakeBackend, AutoTakesTheFirstThatWorksAndListsThem) {
  const RandomModel model({});
  const auto names = available_backends();
  EXPECT_NE(std::ranges::find(names, "cpu"), names.end());
  EXPECT_NE(std::ranges::find(names, "reference"), names.end());
  EXPECT_TRUE(make_backend({}, model.weights(), kPromiseLimits).ok());
}

TEST(MakeBackend, ChoosesTheRowsOfAStepWhereTheCallerDoesNot) {
  const RandomModel model({});
  BackendLimits limits = kPromiseLimits;
  limits.max_rows = 0;
  EXPECT_EQ(make_backend({.name = "cpu"}, model.weights(), limits).value()->max_rows(),
            512 + kPromiseLimits.slots);
  EXPECT_EQ(make_backend({.name = "cpu"}, model.weights(), kPromiseLimits).value()->max_rows(),
            kPromiseLimits.max_rows);
}

}  // namespace
}  // namespace lily
