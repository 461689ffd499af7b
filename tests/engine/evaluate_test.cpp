#include "engine/evaluate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>

namespace lily {
namespace {

std::unique_ptr<LoadedModel> tiny() {
  ModelOptions options;
  options.backend.name = "reference";
  options.max_seq = 64;
  auto model = LoadedModel::open(options);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return model.ok() ? std::move(model).value() : nullptr;
}

std::vector<TokenId> tokens(std::int64_t count) {
  std::vector<TokenId> ids(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>((i * 37 + 11) % 1000);
  return ids;
}

TEST(Mean, HasTheStandardErrorOfTheSample) {
  const Mean mean = mean_of(std::array{1.0, 2.0, 3.0, 4.0});
  EXPECT_DOUBLE_EQ(mean.value, 2.5);
  EXPECT_DOUBLE_EQ(mean.standard_error, std::sqrt(5.0 / 3.0 / 4.0));
  EXPECT_EQ(mean_of(std::array{7.0}).standard_error, 0);
}

TEST(Percentile, IsAValueThatEnoughOthersDoNotExceed) {
  std::vector<double> values(100);
  std::iota(values.rbegin(), values.rend(), 1);
  EXPECT_EQ(percentile(values, 0.99), 99);
  EXPECT_EQ(percentile(values, 0.5), 50);
  EXPECT_EQ(percentile(values, 1), 100);
  EXPECT_EQ(percentile(values, 0), 1);
  EXPECT_EQ(percentile({3.0}, 0.99), 3);
}

TEST(NegativeLogLikelihood, IsThatOfASoftmax) {
  EXPECT_DOUBLE_EQ(negative_log_likelihood(std::array{0.0F, 0.0F, 0.0F, 0.0F}, 2), std::log(4.0));
  EXPECT_NEAR(negative_log_likelihood(std::array{std::log(3.0F), 0.0F}, 0), -std::log(0.75), 1e-7);
  // Logits whose exponentials overflow.
  EXPECT_NEAR(negative_log_likelihood(std::array{1000.0F, 999.0F}, 1), 1 + std::log(1 + std::exp(-1.0)),
              1e-9);
}

TEST(KlDivergence, IsZeroForEqualsAndKnownForTwoCoins) {
  const std::array<float, 3> p = {1.0F, -2.0F, 500.0F};
  EXPECT_EQ(kl_divergence(p, p), 0);
  const std::array fair = {0.0F, 0.0F};
  const std::array bent = {std::log(3.0F), 0.0F};  // 3/4, 1/4
  EXPECT_NEAR(kl_divergence(fair, bent), 0.5 * std::log(0.5 / 0.75) + 0.5 * std::log(0.5 / 0.25), 1e-7);
  EXPECT_NEAR(kl_divergence(bent, fair), 0.75 * std::log(0.75 / 0.5) + 0.25 * std::log(0.25 / 0.5), 1e-7);
}

// The same text scored by one prefill a window, without LogitsStream.
TEST(Evaluate, ScoresEachWindowOnItsOwn) {
  const auto model = tiny();
  ASSERT_NE(model, nullptr);
  const std::vector<TokenId> text = tokens(50);
  constexpr std::size_t kContext = 20;
  std::vector<double> nll;
  for (std::size_t at = 0; at < text.size(); at += kContext) {
    const auto window = std::span(text).subspan(at, std::min(kContext, text.size() - at));
    auto sequence = Sequence::create(model->pool());
    ASSERT_TRUE(sequence.ok());
    std::vector<float> logits;
    ASSERT_TRUE(model->prefill(*sequence, window, Logits::kAll, logits).ok());
    const auto vocab = static_cast<std::size_t>(model->shapes().vocab);
    for (std::size_t i = 0; i + 1 < window.size(); ++i) {
      nll.push_back(negative_log_likelihood(std::span(logits).subspan(i * vocab, vocab), window[i + 1]));
    }
  }
  const auto result =
      evaluate(*model, nullptr, std::array{text}, {.context = kContext, .chunk = 7, .progress = {}});
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->windows, 3);
  EXPECT_EQ(result->scored, 47);
  EXPECT_NEAR(result->nll.value, mean_of(nll).value, 1e-4);
  EXPECT_NEAR(result->perplexity.value, std::exp(mean_of(nll).value), 1e-4 * std::exp(mean_of(nll).value));
  EXPECT_FALSE(result->distance.has_value());
}

TEST(Evaluate, AWindowOfOneTokenScoresNothing) {
  const auto model = tiny();
  ASSERT_NE(model, nullptr);
  const auto result =
      evaluate(*model, nullptr, std::array{tokens(21)}, {.context = 20, .chunk = 0, .progress = {}});
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->windows, 1);
  EXPECT_EQ(result->scored, 19);
  EXPECT_FALSE(evaluate(*model, nullptr, std::array{tokens(1)}, {}).ok());
}

TEST(Evaluate, ReportsProgressAndStopsWhenAsked) {
  const auto model = tiny();
  ASSERT_NE(model, nullptr);
  std::int64_t last = 0;
  const auto whole = evaluate(*model, nullptr, std::array{tokens(40)},
                              {.context = 20, .chunk = 8, .progress = [&](std::int64_t done) {
                                 last = done;
                                 return true;
                               }});
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(last, 39);
  const auto stopped = evaluate(*model, nullptr, std::array{tokens(40)},
                                {.context = 20, .chunk = 8, .progress = [](std::int64_t) { return false; }});
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
}

TEST(LogitsStream, StepsGiveTheRowsOfOnePass) {
  const auto model = tiny();
  ASSERT_NE(model, nullptr);
  const std::vector<TokenId> text = tokens(30);
  std::vector<float> whole;
  {
    auto sequence = Sequence::create(model->pool());
    ASSERT_TRUE(sequence.ok());
    ASSERT_TRUE(model->prefill(*sequence, text, Logits::kAll, whole).ok());
  }
  auto stream = LogitsStream::create(*model, 1);
  ASSERT_TRUE(stream.ok());
  std::vector<float> stepped;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto logits = stream->step(std::span(text).subspan(at));
    ASSERT_TRUE(logits.ok());
    ASSERT_EQ(stream->rows(), 1);
    stepped.insert(stepped.end(), logits->begin(), logits->end());
  }
  EXPECT_THAT(stepped, testing::Pointwise(testing::FloatNear(1e-3F), whole));
}

}  // namespace
}  // namespace lily
