// The CUDA backend against the reference, and what it promises about company, cuts and state. Built twice:
// with the emulator, where the kernels run on the CPU, and with CUDA, where they need a card.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "tests/backend/promises.h"

namespace lily {
namespace {

using testing::Conversation;
using testing::error_of_nearly_all;
using testing::kPromiseLimits;
using testing::ModelSize;
using testing::random_tokens;
using testing::RandomModel;
using testing::relative_error;
using testing::run_conversation;
using testing::run_step;
using testing::Runs;
using testing::Timeline;

// The emulator takes a thousand times as long as a card: it gets the sizes that differ most, and fewer rows.
#ifdef LILY_CUDA_EMULATED
constexpr bool kEmulated = true;
#else
constexpr bool kEmulated = false;
#endif

constexpr Conversation kConversation = {.last_chunk = kEmulated ? 10 : 110,
                                        .decode_steps = kEmulated ? 2 : 5};

std::unique_ptr<Backend> make(const RandomModel& model, const std::string& name) {
  return testing::make(model, {.name = name});
}

class CudaBackend : public ::testing::Test {
 protected:
  void SetUp() override {
    const RandomModel model({.hidden = 64, .vocab = 32});
    const auto backend = make_backend({.name = "cuda"}, model.weights(), kPromiseLimits);
    if (!backend.ok()) GTEST_SKIP() << "NOT CHECKED: " << backend.error().message;
  }
};

/// With one that the Hopper kernels take: inputs in steps of 256.
std::vector<ModelSize> sizes() {
  auto sizes = testing::odd_sizes();
  sizes.push_back({.hidden = 256,
                   .vocab = 300,
                   .attention = {false, true, false},
                   .query_heads = 8,
                   .kv_heads = 1,
                   .linear_key_heads = 2,
                   .linear_value_heads = 4,
                   .experts = 40,
                   .experts_per_token = 8,
                   .expert_width = 256,
                   .shared_width = 256});
  for (ModelSize size : testing::dense_sizes()) {
    if (size.group_size % 64 != 0) size.group_size = 128;
    sizes.push_back(size);
  }
  for (const ModelSize& size : testing::mixed_sizes()) {
    if (size.group_size % 64 == 0 && size.other_group_size % 64 == 0) sizes.push_back(size);
  }
  return sizes;
}

std::vector<ModelSize> affordable_sizes() {
  const auto all = sizes();
  return kEmulated ? std::vector<ModelSize>{all[1], all[2], all[5], all[7]} : all;
}

TEST_F(CudaBackend, MatchesTheReferenceBlockByBlock) {
  for (const ModelSize& size : affordable_sizes()) {
    const RandomModel model(size);
    const Runs expected = run_conversation(*make(model, "reference"), model, kConversation);
    const Runs got = run_conversation(*make(model, "cuda"), model, kConversation);
    ASSERT_EQ(got.residuals.size(), expected.residuals.size());
    for (std::size_t i = 0; i < got.residuals.size(); ++i) {
      EXPECT_LT(error_of_nearly_all(got.residuals[i], expected.residuals[i], size.hidden), 3e-2)
          << "hidden " << size.hidden << " block " << i;
    }
    for (std::size_t i = 0; i < got.logits.size(); ++i) {
      if (expected.logits[i].empty()) continue;
      EXPECT_LT(error_of_nearly_all(got.logits[i], expected.logits[i], size.vocab), 3e-2)
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
  Conversation unprobed = kConversation;
  unprobed.probe = false;
  const Runs recorded = run_conversation(*make(model, "cuda"), model, unprobed);
  const Runs stepwise = run_conversation(*make(model, "cuda"), model, kConversation);
  EXPECT_EQ(recorded.logits, stepwise.logits);
}

// What an ablation leaves out changes how kernels are launched, and of prompts which ones.
TEST_F(CudaBackend, DoesWithoutEachOfItsAblations) {
  const RandomModel model({});
  Conversation unprobed = kConversation;
  unprobed.probe = false;
  const auto whole = make(model, "cuda");
  const Runs expected = run_conversation(*whole, model, unprobed);
  const auto ablations = whole->ablations();
  EXPECT_GE(ablations.size(), 2U);
  for (const Ablation& ablation : ablations) {
    const auto without = testing::make(model, {.name = "cuda", .without = ablation.name});
    for (const Ablation& left : without->ablations()) EXPECT_NE(left.name, ablation.name);
    const Runs got = run_conversation(*without, model, unprobed);
    const bool rounds_alike = ablation.name != "wgmma" && ablation.name != "chunked-delta-rule" &&
                              ablation.name != "routing-on-the-card";
    if (rounds_alike) {
      EXPECT_EQ(got.logits, expected.logits) << ablation.name;
      continue;
    }
    for (std::size_t i = 0; i < got.logits.size(); ++i) {
      if (expected.logits[i].empty()) continue;
      EXPECT_LT(error_of_nearly_all(got.logits[i], expected.logits[i], model.weights().shapes.vocab), 3e-2)
          << ablation.name;
    }
  }
}

TEST_F(CudaBackend, EqualBitsAloneAndInCompany) {
  for (const ModelSize& size : {sizes()[0], sizes()[4]}) {
    if (kEmulated && size.hidden == 256) continue;
    const RandomModel model(size);
    testing::expect_equal_bits_in_company(model, [&] { return make(model, "cuda"); }, kEmulated ? 20 : 100);
  }
}

// One to ten rows take kernels for 1, 4 and 8 rows, in one or two rounds.
TEST_F(CudaBackend, AnyNumberOfDecodingRowsGivesEqualBits) {
  const RandomModel model({.hidden = 256, .experts = 17, .expert_width = 64, .shared_width = 64});
  testing::expect_equal_bits_of_any_number(
      model, [&] { return make(model, "cuda"); }, std::array<std::size_t, 6>{2, 4, 5, 8, 9, 10});
  const RandomModel dense({.hidden = 256, .dense_width = 320});
  testing::expect_equal_bits_of_any_number(
      dense, [&] { return make(dense, "cuda"); }, std::array<std::size_t, 2>{3, 6});
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
  constexpr std::array<std::size_t, 4> kChunks = {64, 2, 7, 160};
  testing::expect_chunks_to_agree_with_steps(
      model, [&] { return make(model, "cuda"); }, 300, std::span(kChunks).first(kEmulated ? 1 : 4), 3e-2);
}

TEST_F(CudaBackend, CopiedStateGoesOnLikeItsOriginal) {
  const RandomModel model({});
  testing::expect_copied_state_to_go_on(model, [&] { return make(model, "cuda"); });
}

TEST_F(CudaBackend, ReusedSlotsAndPagesHoldNothingOfTheirPast) {
  const RandomModel model({});
  testing::expect_reused_state_to_be_fresh(model, [&] { return make(model, "cuda"); });
}

// Of a vocabulary that has many more, and one that has fewer than are listed.
TEST_F(CudaBackend, ListsTheLogitsNearTheLargest) {
  for (const std::int64_t vocab : {150, 3000}) {
    const RandomModel model({.hidden = 64, .vocab = vocab});
    testing::expect_candidates(model, [&] { return make(model, "cuda"); });
  }
}

// Alone and recorded, in company and not: the largest logit below the end.
TEST_F(CudaBackend, ChoosesTheLikeliestToken) {
  const RandomModel model({});
  testing::expect_likeliest_choice(model, [&] { return make(model, "cuda"); });
}

TEST_F(CudaBackend, TakesTheFirstLimitsThatFit) {
  const RandomModel model({});
  BackendLimits vast = kPromiseLimits;
  vast.kv_pages = std::int64_t{1} << 24;
  BackendLimits few = kPromiseLimits;
  few.kv_pages -= 1;
  const std::array choices{vast, few, kPromiseLimits};
  const auto pages = [&](const std::string& name, std::span<const BackendLimits> for_card) {
    return make_fitting_backend({.name = name}, model.weights(), kPromiseLimits, for_card)
        .value()
        .limits.kv_pages;
  };
  EXPECT_EQ(pages("cuda", choices), few.kv_pages);
  EXPECT_EQ(pages("reference", choices), kPromiseLimits.kv_pages);
  EXPECT_EQ(pages("cuda", {}), kPromiseLimits.kv_pages);
  EXPECT_EQ(
      make_fitting_backend({.name = "cuda"}, model.weights(), kPromiseLimits, std::span(choices).first(1))
          .error()
          .code,
      ErrorCode::kExhausted);
}

TEST_F(CudaBackend, RefusesWhatItCannotRun) {
  const RandomModel model({});
  const auto error_of = [&](const ModelWeights& weights, const BackendLimits& limits) {
    return make_backend({.name = "cuda"}, weights, limits).error();
  };
  ModelWeights odd = model.weights();
  odd.lm_head.group_size = 32;
  EXPECT_EQ(error_of(odd, kPromiseLimits).code, ErrorCode::kUnsupported);

  BackendLimits vast = kPromiseLimits;
  vast.kv_pages = std::int64_t{1} << 24;
  const Error error = error_of(model.weights(), vast);
  EXPECT_EQ(error.code, ErrorCode::kExhausted);
  EXPECT_NE(error.message.find("K/V pages"), std::string::npos) << error.message;

  ModelWeights steep = model.weights();
  std::vector<std::byte> scales(static_cast<std::size_t>(steep.lm_head.out * steep.lm_head.groups() * 2));
  for (std::size_t i = 1; i < scales.size(); i += 2) scales[i] = std::byte{0x41};  // 8 and more
  steep.lm_head.scales = scales.data();
  EXPECT_EQ(error_of(steep, kPromiseLimits).code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace lily
