// The CUDA backend against the reference, and what it promises about company, cuts and state. Built twice:
// with the emulator, where the kernels run on the CPU, and with CUDA, where they need a card.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/backend/cpu/random_model.h"

namespace lily {
namespace {

using testing::ModelSize;
using testing::random_tokens;
using testing::RandomModel;
using testing::run_step;
using testing::Timeline;

// The emulator takes a thousand times as long as a card: it gets the sizes that differ most, and fewer rows.
#ifdef LILY_CUDA_EMULATED
constexpr bool kEmulated = true;
#else
constexpr bool kEmulated = false;
#endif

constexpr BackendLimits kLimits = {.kv_pages = 12, .slots = 10, .max_rows = 160};

std::unique_ptr<Backend> make(const RandomModel& model, const std::string& name) {
  auto backend = make_backend({.name = name}, model.weights(), kLimits);
  LILY_CHECK(backend.ok(), "{}", backend.error().message);
  for (SlotId slot = 0; slot < kLimits.slots; ++slot) backend.value()->zero_slot(slot);
  return std::move(backend).value();
}

class CudaBackend : public ::testing::Test {
 protected:
  void SetUp() override {
    const RandomModel model({.hidden = 64, .vocab = 32});
    const auto backend = make_backend({.name = "cuda"}, model.weights(), kLimits);
    if (!backend.ok()) GTEST_SKIP() << "NOT CHECKED: " << backend.error().message;
  }
};

/// Sizes at which something is odd: one query head, 3 and 8 a KV head, widths that fill no tile, odd
/// vocabularies, 4- and 8-bit matrices mixed and stacked, and some that the Hopper kernels take (inputs in
/// steps of 256).
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
      {.hidden = 256,
       .vocab = 300,
       .attention = {false, true, false},
       .query_heads = 8,
       .kv_heads = 1,
       .linear_key_heads = 2,
       .linear_value_heads = 4,
       .experts = 40,
       .experts_per_token = 8,
       .expert_width = 256,
       .shared_width = 256},
  };
}

std::vector<ModelSize> affordable_sizes() {
  const auto all = sizes();
  return kEmulated ? std::vector<ModelSize>{all[1], all[2]} : all;
}

double relative_error(const std::vector<float>& got, const std::vector<float>& expected) {
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - expected[i], 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(error / norm);  // NaN where something is not a number: no comparison holds
}

struct Runs {
  std::vector<std::vector<float>> residuals;  ///< after each block pair of each step
  std::vector<std::vector<float>> logits;
  std::vector<bool> decodes;  ///< one a step
};

/// Two sequences in mixed steps: a prompt, company, then single tokens of both.
Runs run_conversation(Backend& backend, const RandomModel& model, bool probe) {
  const std::int64_t vocab = model.weights().shapes.vocab;
  const auto a = random_tokens(80, vocab, 1);
  const auto b = random_tokens(200, vocab, 2);
  Timeline first{.pages = {3}, .slot = 4};
  Timeline second{.pages = {0}, .slot = 1};
  Runs runs;
  std::int64_t rows = 0;
  const auto read = [&](int) {
    runs.residuals.emplace_back(static_cast<std::size_t>(rows * model.weights().shapes.hidden));
    backend.read_residual(runs.residuals.back());
  };
  const auto step = [&](std::vector<Segment> segments) {
    rows = Batch{.segments = segments}.rows();
    runs.logits.push_back(run_step(backend, model.weights(), std::move(segments),
                                   probe ? ResidualProbe(read) : ResidualProbe()));
  };
  const std::span<const TokenId> x(a);
  const std::span<const TokenId> y(b);
  step({first.extend(x.subspan(0, 1), Logits::kLast)});  // shorter than the convolution
  step({first.extend(x.subspan(1, 2), Logits::kAll)});
  step({second.extend(y.subspan(0, 65), Logits::kLast), first.extend(x.subspan(3, 1), Logits::kAll)});
  step({first.extend(x.subspan(4, 33), Logits::kNone), second.extend(y.subspan(65, 5), Logits::kAll)});
  const std::size_t rows_more = kEmulated ? 10 : 110;
  step({second.extend(y.subspan(70, rows_more), Logits::kLast)});
  for (std::size_t i = 0; i < (kEmulated ? 2 : 5); ++i) {
    step({first.extend(x.subspan(37 + i, 1), Logits::kLast),
          second.extend(y.subspan(70 + rows_more + i, 1), Logits::kLast)});
  }
  return runs;
}

TEST_F(CudaBackend, MatchesTheReferenceBlockByBlock) {
  for (const ModelSize& size : affordable_sizes()) {
    const RandomModel model(size);
    const Runs expected = run_conversation(*make(model, "reference"), model, true);
    const Runs got = run_conversation(*make(model, "cuda"), model, true);
    ASSERT_EQ(got.residuals.size(), expected.residuals.size());
    // bf16 moves a prompt's rows by half a percent; a row whose expert changes for it by more.
    double mean = 0;
    for (std::size_t i = 0; i < got.residuals.size(); ++i) {
      const double error = relative_error(got.residuals[i], expected.residuals[i]);
      EXPECT_LT(error, 6e-2) << "hidden " << size.hidden << " block " << i;
      mean += error / static_cast<double>(got.residuals.size());
    }
    EXPECT_LT(mean, 1e-2) << "hidden " << size.hidden;
    for (std::size_t i = 0; i < got.logits.size(); ++i) {
      if (expected.logits[i].empty()) continue;
      EXPECT_LT(relative_error(got.logits[i], expected.logits[i]), 6e-2)
          << "hidden " << size.hidden << " step " << i;
    }
  }
}

// Decoding keeps f32 activations to 16 bits; what remains is K and V in bf16.
TEST_F(CudaBackend, DecodingAloneIsCloseToTheReference) {
  for (const ModelSize& size : sizes()) {
    const RandomModel model(size);
    const auto tokens = random_tokens(kEmulated ? 5 : 20, model.weights().shapes.vocab, 3);
    const auto run = [&](const std::string& name) {
      const auto backend = make(model, name);
      Timeline timeline{.pages = {1}, .slot = 2};
      std::vector<float> logits;
      for (std::size_t i = 0; i < tokens.size(); ++i)
        logits = run_step(*backend, model.weights(),
                          {timeline.extend(std::span(tokens).subspan(i, 1), Logits::kLast)});
      return logits;
    };
    EXPECT_LT(relative_error(run("cuda"), run("reference")), 1e-2) << "hidden " << size.hidden;
  }
}

// A recorded step replays what blocks run one by one compute.
TEST_F(CudaBackend, RecordedStepsGiveTheBitsOfStepsRunBlockByBlock) {
  const RandomModel model({});
  const Runs recorded = run_conversation(*make(model, "cuda"), model, false);
  const Runs stepwise = run_conversation(*make(model, "cuda"), model, true);
  EXPECT_EQ(recorded.logits, stepwise.logits);
}

// Prefill beside prefill, prefill beside decode, decode beside decode: a segment's bits are its own.
TEST_F(CudaBackend, EqualBitsAloneAndInCompany) {
  for (const ModelSize& size : {sizes()[0], sizes()[4]}) {
    if (kEmulated && size.hidden == 256) continue;
    const RandomModel model(size);
    const auto together = make(model, "cuda");
    const auto alone = make(model, "cuda");
    const std::int64_t vocab = model.weights().shapes.vocab;
    const auto a = random_tokens(60, vocab, 1);
    const std::span<const TokenId> x(a);
    Timeline solo{.pages = {2, 7}, .slot = 0};
    Timeline mixed{.pages = {5, 1}, .slot = 3};
    Timeline company{.pages = {8, 9}, .slot = 2};
    Timeline other{.pages = {10, 11}, .slot = 5};
    const auto noise = random_tokens(600, vocab, 9);
    const std::span<const TokenId> n(noise);
    std::size_t used = 0;
    std::size_t done = 0;
    for (const std::size_t rows : {1, 2, 3, 17, 1, 1, 33, 1}) {
      const auto tokens = x.subspan(done, rows);
      done += rows;
      const auto expected = run_step(*alone, model.weights(), {solo.extend(tokens, Logits::kAll)});
      const std::size_t more = done % 2 == 0 ? 1 : kEmulated ? 20 : 100;
      const auto got =
          run_step(*together, model.weights(),
                   {company.extend(n.subspan(used, more), Logits::kNone), mixed.extend(tokens, Logits::kAll),
                    other.extend(n.subspan(used + more, 1), Logits::kNone)});
      used += more + 1;
      EXPECT_EQ(got, expected) << rows << " rows";
    }
  }
}

// One to ten rows take kernels for 1, 4 and 8 rows, in one or two rounds.
TEST_F(CudaBackend, AnyNumberOfDecodingRowsGivesEqualBits) {
  const RandomModel model({.hidden = 256, .experts = 17, .expert_width = 64, .shared_width = 64});
  const std::int64_t vocab = model.weights().shapes.vocab;
  const auto alone = make(model, "cuda");
  const auto tokens = random_tokens(40, vocab, 11);
  std::vector<std::vector<float>> expected;
  for (std::size_t i = 0; i < 10; ++i) {
    Timeline timeline{.pages = {static_cast<PageId>(i)}, .slot = static_cast<SlotId>(i)};
    run_step(*alone, model.weights(), {timeline.extend(std::span(tokens).subspan(i, 1), Logits::kNone)});
    expected.push_back(run_step(*alone, model.weights(),
                                {timeline.extend(std::span(tokens).subspan(10 + i, 1), Logits::kLast)}));
  }
  for (const std::size_t rows : {2, 4, 5, 8, 9, 10}) {
    const auto together = make(model, "cuda");
    std::vector<Timeline> timelines;
    for (std::size_t i = 0; i < rows; ++i)
      timelines.push_back({.pages = {static_cast<PageId>(i)}, .slot = static_cast<SlotId>(i)});
    std::vector<float> logits;
    for (const std::size_t at : {0, 10}) {
      std::vector<Segment> segments;
      for (std::size_t i = 0; i < rows; ++i)
        segments.push_back(timelines[i].extend(std::span(tokens).subspan(at + i, 1), Logits::kLast));
      logits = run_step(*together, model.weights(), segments);
    }
    for (std::size_t i = 0; i < rows; ++i) {
      const auto mine =
          std::span(logits).subspan(i * static_cast<std::size_t>(vocab), static_cast<std::size_t>(vocab));
      EXPECT_TRUE(std::ranges::equal(mine, expected[i])) << "row " << i << " of " << rows;
    }
  }
}

// Prompts are cut on the grid of 64; one row may remain. Tiles of every height take part.
TEST_F(CudaBackend, PrefillGivesEqualBitsHoweverItIsCut) {
  for (const ModelSize& size : {sizes()[0], sizes()[4]}) {
    if (kEmulated && size.hidden == 256) continue;
    const RandomModel model(size);
    const auto backend = make(model, "cuda");
    const auto a = random_tokens(150, model.weights().shapes.vocab, 4);
    const std::span<const TokenId> x(a);
    Timeline whole{.pages = {0}, .slot = 0};
    const auto expected =
        run_step(*backend, model.weights(), {whole.extend(x.subspan(0, 129), Logits::kLast)});
    Timeline cut{.pages = {1}, .slot = 1};
    run_step(*backend, model.weights(), {cut.extend(x.subspan(0, 64), Logits::kNone)});
    run_step(*backend, model.weights(), {cut.extend(x.subspan(64, 64), Logits::kNone)});
    EXPECT_EQ(
        run_step(*backend, model.weights(), {cut.extend(x.subspan(128, 1), Logits::kLast, Phase::kPrefill)}),
        expected);
  }
}

// Over several pages and ranges of attention, at odd cuts.
TEST_F(CudaBackend, ChunksAgreeWithTokenByToken) {
  const RandomModel model({.hidden = 64, .vocab = 40});
  const auto backend = make(model, "cuda");
  const auto a = random_tokens(300, 40, 3);
  const std::span<const TokenId> x(a);
  Timeline steps{.pages = {0, 1}, .slot = 0};
  std::vector<float> expected;
  for (std::size_t i = 0; i < x.size(); ++i)
    expected = run_step(*backend, model.weights(), {steps.extend(x.subspan(i, 1), Logits::kLast)});
  for (const std::size_t chunk : {2, 7, 64, 160}) {
    if (kEmulated && chunk != 64) continue;
    backend->zero_slot(1);
    Timeline chunks{.pages = {2, 3}, .slot = 1};
    std::vector<float> got;
    for (std::size_t i = 0; i < x.size(); i += chunk) {
      got = run_step(
          *backend, model.weights(),
          {chunks.extend(x.subspan(i, std::min(chunk, x.size() - i)), Logits::kLast, Phase::kPrefill)});
    }
    EXPECT_LT(relative_error(got, expected), 3e-2) << chunk;
  }
}

TEST_F(CudaBackend, CopiedStateGoesOnLikeItsOriginal) {
  const RandomModel model({});
  const auto backend = make(model, "cuda");
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

  const auto fresh = make(model, "cuda");
  fresh->write_slot(2, slot);
  fresh->write_page(9, page);
  std::vector<std::byte> read(slot.size());
  fresh->read_slot(2, read);
  EXPECT_EQ(read, slot);
  Timeline restored{.pages = {9}, .slot = 2, .length = 40};
  EXPECT_EQ(run_step(*fresh, model.weights(), {restored.extend(x.subspan(40), Logits::kAll)}), expected);
}

TEST_F(CudaBackend, ReusedSlotsAndPagesHoldNothingOfTheirPast) {
  const RandomModel model({});
  const auto backend = make(model, "cuda");
  const auto a = random_tokens(90, 150, 6);
  const std::span<const TokenId> x(a);
  Timeline first{.pages = {0}, .slot = 0};
  const auto expected = run_step(*backend, model.weights(), {first.extend(x.subspan(0, 3), Logits::kAll)});
  run_step(*backend, model.weights(), {first.extend(x.subspan(3), Logits::kNone)});
  backend->zero_slot(0);
  Timeline again{.pages = {0}, .slot = 0};
  EXPECT_EQ(run_step(*backend, model.weights(), {again.extend(x.subspan(0, 3), Logits::kAll)}), expected);
}

// Alone and recorded, in company and not: the largest logit below the end.
TEST_F(CudaBackend, ChoosesTheLikeliestToken) {
  const RandomModel model({});
  const auto with_logits = make(model, "cuda");
  const auto choosing = make(model, "cuda");
  const auto tokens = random_tokens(40, 150, 8);
  const std::span<const TokenId> x(tokens);
  constexpr TokenId kEnd = 100;
  Timeline first[2] = {{.pages = {0}, .slot = 0}, {.pages = {0}, .slot = 0}};
  Timeline second[2] = {{.pages = {1}, .slot = 1}, {.pages = {1}, .slot = 1}};
  for (std::size_t step = 0; step < 5; ++step) {
    const std::size_t rows = step == 0 ? 9 : 1;
    const auto segments = [&](int which) {
      std::vector<Segment> s = {first[which].extend(x.subspan(step * 9 % 30, rows), Logits::kLast)};
      if (step > 0) s.push_back(second[which].extend(x.subspan(step, 1), Logits::kLast));
      return s;
    };
    const auto logits = run_step(*with_logits, model.weights(), segments(0));
    const Batch batch{.segments = segments(1)};
    std::vector<TokenId> best(static_cast<std::size_t>(batch.logits_rows()));
    ASSERT_TRUE(forward_greedy(*choosing, model.weights(), batch, best, kEnd).ok());
    for (std::size_t i = 0; i < best.size(); ++i) {
      const auto row = std::span(logits).subspan(i * 150, kEnd);
      EXPECT_EQ(best[i], std::ranges::max_element(row) - row.begin()) << "step " << step << " row " << i;
    }
  }
}

TEST_F(CudaBackend, RefusesWhatItCannotRun) {
  const RandomModel model({});
  const auto error_of = [&](const ModelWeights& weights, const BackendLimits& limits) {
    return make_backend({.name = "cuda"}, weights, limits).error();
  };
  ModelWeights odd = model.weights();
  odd.lm_head.group_size = 32;
  EXPECT_EQ(error_of(odd, kLimits).code, ErrorCode::kUnsupported);

  BackendLimits vast = kLimits;
  vast.kv_pages = std::int64_t{1} << 24;
  const Error error = error_of(model.weights(), vast);
  EXPECT_EQ(error.code, ErrorCode::kExhausted);
  EXPECT_NE(error.message.find("K/V pages"), std::string::npos) << error.message;

  ModelWeights steep = model.weights();
  std::vector<std::byte> scales(static_cast<std::size_t>(steep.lm_head.out * steep.lm_head.groups() * 2));
  for (std::size_t i = 1; i < scales.size(); i += 2) scales[i] = std::byte{0x41};  // 8 and more
  steep.lm_head.scales = scales.data();
  EXPECT_EQ(error_of(steep, kLimits).code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace lily
