// The whole backend: against the reference, block by block, and what it promises about company, threads and
// state.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "backend/cpu/isa.h"
#include "backend/cpu/kernels.h"
#include "tests/backend/cpu/random_model.h"

namespace lily {
namespace {

using testing::ModelSize;
using testing::random_tokens;
using testing::RandomModel;
using testing::run_step;
using testing::Timeline;

constexpr BackendLimits kLimits = {.kv_pages = 12, .slots = 6, .max_rows = 128};

std::unique_ptr<Backend> make(const RandomModel& model, const BackendOptions& options) {
  auto backend = make_backend(options, model.weights(), kLimits);
  LILY_CHECK(backend.ok(), "{}", backend.error().message);
  for (SlotId slot = 0; slot < kLimits.slots; ++slot) backend.value()->zero_slot(slot);
  return std::move(backend).value();
}

BackendOptions cpu(bool exact, int threads = 2, const std::string& isa = "auto") {
  return {.name = "cpu", .exact = exact, .threads = threads, .isa = isa};
}

/// All sizes at which some backend has gone wrong: one query head, ratios of 1 to 4 value heads, odd widths.
std::vector<ModelSize> sizes() {
  return {
      {},
      {.hidden = 64,
       .vocab = 33,
       .query_heads = 1,
       .kv_heads = 1,
       .linear_key_heads = 2,
       .linear_value_heads = 2},
      {.hidden = 320,
       .attention = {true, false, false},
       .query_heads = 6,
       .kv_heads = 2,
       .linear_key_heads = 2,
       .linear_value_heads = 6,
       .experts = 17,
       .experts_per_token = 5,
       .expert_width = 192,
       .shared_width = 64},
      {.query_heads = 16,
       .kv_heads = 2,
       .linear_key_heads = 1,
       .linear_value_heads = 4,
       .bits = 8,
       .other_bits = 4},
  };
}

double relative_error(const std::vector<float>& got, const std::vector<float>& expected) {
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - expected[i], 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(error / norm);
}

struct Runs {
  std::vector<std::vector<float>> residuals;  ///< after each block pair of each step
  std::vector<std::vector<float>> logits;
};

/// Two sequences in mixed steps: a prompt, company, then single tokens of both.
Runs run_conversation(Backend& backend, const RandomModel& model) {
  const std::int64_t vocab = model.weights().shapes.vocab;
  const auto a = random_tokens(80, vocab, 1);
  const auto b = random_tokens(80, vocab, 2);
  Timeline first{.pages = {3}, .slot = 4};
  Timeline second{.pages = {0}, .slot = 1};
  Runs runs;
  std::int64_t rows = 0;
  const auto step = [&](std::vector<Segment> segments) {
    rows = Batch{.segments = segments}.rows();
    runs.logits.push_back(run_step(backend, model.weights(), std::move(segments), [&](int) {
      runs.residuals.emplace_back(static_cast<std::size_t>(rows * model.weights().shapes.hidden));
      backend.read_residual(runs.residuals.back());
    }));
  };
  const std::span<const TokenId> x(a);
  const std::span<const TokenId> y(b);
  step({first.extend(x.subspan(0, 1), Logits::kLast)});  // shorter than the convolution
  step({first.extend(x.subspan(1, 2), Logits::kAll)});
  step({second.extend(y.subspan(0, 65), Logits::kLast), first.extend(x.subspan(3, 1), Logits::kAll)});
  step({first.extend(x.subspan(4, 33), Logits::kNone), second.extend(y.subspan(65, 5), Logits::kAll)});
  for (std::size_t i = 0; i < 3; ++i) {
    step({first.extend(x.subspan(37 + i, 1), Logits::kLast),
          second.extend(y.subspan(70 + i, 1), Logits::kLast)});
  }
  return runs;
}

TEST(CpuBackend, ExactMatchesTheReferenceOnEveryIsa) {
  for (const ModelSize& size : sizes()) {
    const RandomModel model(size);
    const auto reference = make(model, {.name = "reference"});
    const Runs expected = run_conversation(*reference, model);
    for (const cpu::Kernels* kernels : cpu::usable_kernels()) {
      const auto backend = make(model, cpu(true, 2, kernels->isa));
      const Runs got = run_conversation(*backend, model);
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
  for (const ModelSize& size : sizes()) {
    const RandomModel model(size);
    const auto reference = make(model, {.name = "reference"});
    const Runs expected = run_conversation(*reference, model);
    for (const cpu::Kernels* kernels : cpu::usable_kernels()) {
      const auto backend = make(model, cpu(false, 2, kernels->isa));
      const Runs got = run_conversation(*backend, model);
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
  const RandomModel model(sizes()[2]);
  const auto one = make(model, options(1));
  const Runs expected = run_conversation(*one, model);
  for (const int threads : {2, 3}) {
    const auto several = make(model, options(threads));
    const Runs got = run_conversation(*several, model);
    EXPECT_EQ(got.residuals, expected.residuals) << threads;
    EXPECT_EQ(got.logits, expected.logits) << threads;
  }
}

// Prefill beside prefill, prefill beside decode, decode beside decode: a segment's bits are its own.
TEST_P(CpuBackendMode, EqualBitsAloneAndInCompany) {
  const RandomModel model({});
  const auto together = make(model, options(2));
  const auto alone = make(model, options(2));
  const std::int64_t vocab = model.weights().shapes.vocab;
  const auto a = random_tokens(60, vocab, 1);
  const std::span<const TokenId> x(a);
  Timeline solo{.pages = {2, 7}, .slot = 0};
  Timeline mixed{.pages = {5, 1}, .slot = 3};
  Timeline company{.pages = {8, 9}, .slot = 2};
  Timeline other{.pages = {10, 11}, .slot = 5};
  const auto noise = random_tokens(200, vocab, 9);
  const std::span<const TokenId> n(noise);
  std::size_t used = 0;
  std::size_t done = 0;
  for (const std::size_t rows : {1, 2, 3, 17, 1, 1, 33, 1}) {
    const auto tokens = x.subspan(done, rows);
    done += rows;
    const auto expected = run_step(*alone, model.weights(), {solo.extend(tokens, Logits::kAll)});
    const std::size_t more = done % 2 == 0 ? 1 : 20;
    const auto got =
        run_step(*together, model.weights(),
                 {company.extend(n.subspan(used, more), Logits::kNone), mixed.extend(tokens, Logits::kAll),
                  other.extend(n.subspan(used + more, 1), Logits::kNone)});
    used += more + 1;
    EXPECT_EQ(got, expected) << rows << " rows";
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
  const auto backend = make(model, options(2));
  const auto a = random_tokens(50, 150, 5);
  const std::span<const TokenId> x(a);
  Timeline original{.pages = {0}, .slot = 0};
  run_step(*backend, model.weights(), {original.extend(x.subspan(0, 40), Logits::kNone)});
  backend->copy_slot(0, 3);
  backend->copy_page(0, 6);
  std::vector<std::byte> slot(static_cast<std::size_t>(backend->slot_bytes()));
  std::vector<std::byte> page(static_cast<std::size_t>(backend->page_bytes()));
  backend->read_slot(0, slot);
  backend->read_page(0, page);
  Timeline copy{.pages = {6}, .slot = 3, .length = 40};
  const auto expected = run_step(*backend, model.weights(), {original.extend(x.subspan(40), Logits::kAll)});
  EXPECT_EQ(run_step(*backend, model.weights(), {copy.extend(x.subspan(40), Logits::kAll)}), expected);

  const auto fresh = make(model, options(1));
  fresh->write_slot(2, slot);
  fresh->write_page(9, page);
  Timeline restored{.pages = {9}, .slot = 2, .length = 40};
  EXPECT_EQ(run_step(*fresh, model.weights(), {restored.extend(x.subspan(40), Logits::kAll)}), expected);
}

TEST_P(CpuBackendMode, ReusedSlotsAndPagesHoldNothingOfTheirPast) {
  const RandomModel model({});
  const auto backend = make(model, options(2));
  const auto a = random_tokens(90, 150, 6);
  const std::span<const TokenId> x(a);
  Timeline first{.pages = {0}, .slot = 0};
  const auto expected = run_step(*backend, model.weights(), {first.extend(x.subspan(0, 3), Logits::kAll)});
  run_step(*backend, model.weights(), {first.extend(x.subspan(3), Logits::kNone)});
  backend->zero_slot(0);
  Timeline again{.pages = {0}, .slot = 0};
  EXPECT_EQ(run_step(*backend, model.weights(), {again.extend(x.subspan(0, 3), Logits::kAll)}), expected);
  backend->release_page(0);
  backend->release_slot(0);
  Timeline third{.pages = {0}, .slot = 0};
  EXPECT_EQ(run_step(*backend, model.weights(), {third.extend(x.subspan(0, 3), Logits::kAll)}), expected);
}

TEST(CpuBackend, PagesAreAsLargeAsTheirType) {
  const RandomModel model({.attention = {true, false, true}, .query_heads = 4, .kv_heads = 2});
  for (const auto& [kv_type, row_bytes] :
       {std::pair{"f32", 1024}, {"bf16", 512}, {"auto", 512}, {"q8", 272}}) {
    const auto backend = make(model, {.name = "cpu", .kv_type = kv_type});
    EXPECT_EQ(backend->page_bytes(), 2 * 2 * 2 * 256 * row_bytes) << kv_type;  // layers, K and V, heads, rows
  }
}

TEST(MakeBackend, RefusesWhatItCannotRun) {
  const RandomModel model({});
  const auto error_of = [&](const BackendOptions& options) {
    return make_backend(options, model.weights(), kLimits).error();
  };
  EXPECT_EQ(error_of({.name = "tpu"}).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of(cpu(false, 1, "mmx")).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of(cpu(false, -1)).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of({.name = "cpu", .kv_type = "q3"}).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of({.name = "reference", .kv_type = "q8"}).code, ErrorCode::kUnsupported);

  ModelWeights odd = model.weights();
  odd.lm_head.group_size = 32;
  EXPECT_EQ(make_backend(cpu(false), odd, kLimits).error().code, ErrorCode::kUnsupported);
}

TEST(MakeBackend, AutoTakesTheFirstThatWorksAndListsThem) {
  const RandomModel model({});
  const auto names = available_backends();
  EXPECT_NE(std::ranges::find(names, "cpu"), names.end());
  EXPECT_NE(std::ranges::find(names, "reference"), names.end());
  EXPECT_TRUE(make_backend({}, model.weights(), kLimits).ok());
}

TEST(PreferredRows, AreMoreWhereACardReadsThePrompt) {
  EXPECT_EQ(preferred_rows({.name = "cpu"}), 512);
  EXPECT_EQ(preferred_rows({.name = "cuda"}), 4096);
  EXPECT_EQ(preferred_rows({.name = "auto"}), check_cuda_device().ok() ? 4096 : 512);
}

}  // namespace
}  // namespace lily
