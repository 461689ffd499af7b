#include "engine/continuation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace lily {
namespace {

std::unique_ptr<LoadedModel> tiny(const char* backend) {
  ModelOptions options;
  options.backend.name = backend;
  options.max_seq = 64;
  auto model = LoadedModel::open(options);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return model.ok() ? std::move(model).value() : nullptr;
}

const std::vector<TokenId> kPrompt = {5, 300, 17, 4, 1200};

TEST(KlOfLikeliest, IsTheWholeOneWhenNothingIsLeftOut) {
  const std::array logits = {std::log(3.0F), 0.0F};  // 3/4, 1/4
  const std::array<TokenLogprob, 2> fair = {{{0, std::log(0.5F)}, {1, std::log(0.5F)}}};
  EXPECT_NEAR(kl_of_likeliest(fair, logits), 0.5 * std::log(0.5 / 0.75) + 0.5 * std::log(0.5 / 0.25), 1e-6);
}

TEST(KlOfLikeliest, TakesTheRestAsOneToken) {
  const std::array logits = {std::log(2.0F), 0.0F, 0.0F};  // 1/2, 1/4, 1/4
  const std::array<TokenLogprob, 1> top = {{{0, std::log(0.25F)}}};
  const double expected = 0.25 * std::log(0.25 / 0.5) + 0.75 * std::log(0.75 / 0.5);
  EXPECT_NEAR(kl_of_likeliest(top, logits), expected, 1e-6);
}

TEST(Continuation, IsWhatGreedyDecodingGives) {
  const auto model = tiny("reference");
  ASSERT_NE(model, nullptr);
  const auto steps = continue_greedily(*model, kPrompt, 6);
  ASSERT_TRUE(steps.ok()) << steps.error().message;
  ASSERT_EQ(steps->size(), 6U);
  auto sequence = Sequence::create(model->pool());
  ASSERT_TRUE(sequence.ok());
  std::vector<float> logits;
  ASSERT_TRUE(model->prefill(*sequence, kPrompt, Logits::kLast, logits).ok());
  TokenId token = (*steps)[0].token;
  for (std::size_t i = 1; i < steps->size(); ++i) {
    ASSERT_TRUE(model->decode_greedy(std::span(&*sequence, 1), std::span(&token, 1), logits).ok());
    EXPECT_EQ(token, (*steps)[i].token) << i;
  }
  for (const ContinuationStep& step : *steps) {
    ASSERT_EQ(step.top.size(), static_cast<std::size_t>(kComparedTokens));
    EXPECT_EQ(step.top.front().id, step.token);
    EXPECT_GE(step.top[0].logprob, step.top[1].logprob);
  }
}

TEST(Continuation, ModelsAreNoDistanceFromThemselves) {
  const auto model = tiny("reference");
  ASSERT_NE(model, nullptr);
  const auto steps = continue_greedily(*model, kPrompt, 6);
  ASSERT_TRUE(steps.ok());
  ContinuationDistance distance;
  ASSERT_TRUE(compare_continuation(*model, kPrompt, *steps, distance).ok());
  EXPECT_EQ(distance.continuations, 1);
  EXPECT_EQ(distance.steps, 6);
  EXPECT_EQ(distance.agreed, 6);
  EXPECT_TRUE(distance.first.empty());
  EXPECT_THAT(distance.kl, testing::Each(testing::Lt(1e-6)));
}

TEST(Continuation, NamesTheFirstStepThatDiffers) {
  const auto model = tiny("reference");
  ASSERT_NE(model, nullptr);
  auto steps = continue_greedily(*model, kPrompt, 6);
  ASSERT_TRUE(steps.ok());
  (*steps)[3].token = (*steps)[3].top[1].id;
  ContinuationDistance distance;
  ASSERT_TRUE(compare_continuation(*model, kPrompt, *steps, distance).ok());
  EXPECT_THAT(distance.first, testing::ElementsAre(3));
  EXPECT_LT(distance.agreed, 6);
  EXPECT_GE(distance.agreed, 3);
}

TEST(Continuation, IntegerActivationsAreNearTheReference) {
  const auto reference = tiny("reference");
  const auto cpu = tiny("cpu");
  ASSERT_TRUE(reference != nullptr && cpu != nullptr);
  const auto steps = continue_greedily(*reference, kPrompt, 20);
  ASSERT_TRUE(steps.ok());
  ContinuationDistance distance;
  ASSERT_TRUE(compare_continuation(*cpu, kPrompt, *steps, distance).ok());
  EXPECT_GT(mean_of(distance.kl).value, 0);
  EXPECT_LT(mean_of(distance.kl).value, 0.05);
}

}  // namespace
}  // namespace lily
