#include "engine/sequence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/loaded_model.h"
#include "model/forward.h"
#include "tests/sanitized.h"

namespace lily {
namespace {

std::unique_ptr<LoadedModel> open_tiny(const std::string& backend, bool exact = false) {
  ModelOptions options;
  options.backend = {.name = backend, .exact = exact, .threads = 2, .isa = "auto"};
  options.max_seq = 1024;
  options.slots = 3;
  options.max_rows = 256;
  auto model = LoadedModel::open(options);
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  return model.ok() ? std::move(model).value() : nullptr;
}

std::vector<TokenId> ids(std::size_t count, TokenId first) {
  std::vector<TokenId> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = (first + static_cast<TokenId>(i) * 7) % 500;
  return out;
}

std::vector<float> feed(LoadedModel& model, Sequence& sequence, const std::vector<TokenId>& tokens,
                        std::int64_t chunk = 0) {
  std::vector<float> logits;
  const auto done = model.prefill(sequence, tokens, Logits::kLast, logits, chunk);
  EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message);
  return logits;
}

TEST(NextChunk, EndsOnTheGridUnlessItTakesTheRest) {
  EXPECT_EQ(next_chunk(0, 1000, 512), 512);
  EXPECT_EQ(next_chunk(0, 512, 512), 512);
  EXPECT_EQ(next_chunk(0, 500, 512), 500);
  EXPECT_EQ(next_chunk(10, 1000, 512), 502);  // up to 512
  EXPECT_EQ(next_chunk(10, 1000, 64), 54);    // up to 64
  EXPECT_EQ(next_chunk(63, 1000, 64), 1);
  EXPECT_EQ(next_chunk(64, 1000, 100), 64);  // 164 is not on the grid, 128 is
  EXPECT_EQ(next_chunk(5, 1000, 7), 7);      // shorter than the grid: taken as asked
}

class SequenceOn : public ::testing::TestWithParam<const char*> {};

// A fork continues like the original, and neither disturbs the other, wherever it is cut: inside a page, at
// its end, just after it.
TEST_P(SequenceOn, ForksAreIndependentAtEveryKindOfCut) {
  const auto model = open_tiny(GetParam());
  ASSERT_NE(model, nullptr);
  for (const std::size_t cut : {1U, 64U, 255U, 256U, 257U}) {
    auto original = Sequence::create(model->pool());
    ASSERT_TRUE(original.ok());
    feed(*model, *original, ids(cut, 3));
    auto fork = original->fork();
    ASSERT_TRUE(fork.ok()) << fork.error().message;
    const auto from_fork = feed(*model, *fork, ids(20, 11));
    feed(*model, *original, ids(30, 99));  // must not reach the fork
    const auto again = feed(*model, *fork, ids(5, 42));

    auto cold = Sequence::create(model->pool());
    ASSERT_TRUE(cold.ok());
    feed(*model, *cold, ids(cut, 3));
    EXPECT_EQ(feed(*model, *cold, ids(20, 11)), from_fork) << "cut " << cut;
    EXPECT_EQ(feed(*model, *cold, ids(5, 42)), again) << "cut " << cut;
  }
}

TEST_P(SequenceOn, GivesBackWhatItHeld) {
  const auto model = open_tiny(GetParam());
  ASSERT_NE(model, nullptr);
  const auto pages = model->pool().free_pages();
  const auto slots = model->pool().free_slots();
  {
    auto sequence = Sequence::create(model->pool());
    ASSERT_TRUE(sequence.ok());
    feed(*model, *sequence, ids(300, 1));
    EXPECT_EQ(model->pool().free_pages(), pages - 2);
    auto fork = sequence->fork();
    ASSERT_TRUE(fork.ok());
    EXPECT_EQ(model->pool().free_pages(), pages - 3);  // the full page is shared
    EXPECT_EQ(model->pool().free_slots(), slots - 2);
    Sequence moved = std::move(*fork);
    EXPECT_EQ(moved.length(), 300);
  }
  EXPECT_EQ(model->pool().free_pages(), pages);
  EXPECT_EQ(model->pool().free_slots(), slots);
}

TEST_P(SequenceOn, RunningOutOfPagesChangesNothing) {
  const auto model = open_tiny(GetParam());
  ASSERT_NE(model, nullptr);
  auto a = Sequence::create(model->pool());
  auto hog = Sequence::create(model->pool());
  ASSERT_TRUE(a.ok() && hog.ok());
  const auto total = model->pool().free_pages() * kKvPageTokens;
  ASSERT_TRUE(
      hog->extend(ids(static_cast<std::size_t>(total - kKvPageTokens), 1), Phase::kPrefill, Logits::kNone)
          .ok());
  const auto before = model->pool().free_pages();
  const auto refused = a->extend(ids(300, 1), Phase::kPrefill, Logits::kNone);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(model->pool().free_pages(), before);
  EXPECT_EQ(a->length(), 0);
  const auto logits = feed(*model, *a, ids(10, 1));
  EXPECT_TRUE(std::ranges::none_of(logits, [](float l) { return std::isnan(l); }));
}

// The contract of the backend: rows of other sequences in the step change nothing, to the bit.
TEST_P(SequenceOn, ResultsDoNotDependOnTheNeighbours) {
  const auto model = open_tiny(GetParam());
  ASSERT_NE(model, nullptr);
  const auto vocab = static_cast<std::size_t>(model->shapes().vocab);
  auto alone = Sequence::create(model->pool());
  ASSERT_TRUE(alone.ok());
  const auto prompt = ids(65, 5);
  const auto expected_prefill = feed(*model, *alone, prompt);
  const auto expected_decode = feed(*model, *alone, {17}, 1);

  auto a = Sequence::create(model->pool());
  auto b = Sequence::create(model->pool());
  ASSERT_TRUE(a.ok() && b.ok());
  feed(*model, *b, ids(40, 8));
  const auto step = [&](const std::vector<TokenId>& for_a, Phase phase_a, const std::vector<TokenId>& for_b,
                        Phase phase_b) {
    std::vector<float> logits(2 * vocab);
    const Batch batch{.segments = {b->extend(for_b, phase_b, Logits::kLast).value(),
                                   a->extend(for_a, phase_a, Logits::kLast).value()}};
    EXPECT_TRUE(forward(model->backend(), model->weights(), batch, logits).ok());
    a->advance();
    b->advance();
    return std::vector<float>(logits.begin() + static_cast<std::ptrdiff_t>(vocab), logits.end());
  };
  EXPECT_EQ(step(prompt, Phase::kPrefill, {9}, Phase::kDecode), expected_prefill);
  EXPECT_EQ(step({17}, Phase::kDecode, ids(33, 2), Phase::kPrefill), expected_decode);
}

// How a prompt is cut changes nothing on this grid: a last chunk of one row is prefill still.
TEST_P(SequenceOn, CutsOnTheGridChangeNothing) {
  const auto model = open_tiny(GetParam());
  ASSERT_NE(model, nullptr);
  const auto prompt = ids(129, 5);
  auto whole = Sequence::create(model->pool());
  auto cut = Sequence::create(model->pool());
  ASSERT_TRUE(whole.ok() && cut.ok());
  EXPECT_EQ(feed(*model, *whole, prompt), feed(*model, *cut, prompt, 64));
}

// However long the prompt is and however it is cut: what its tokens give one by one. Lengths beside every
// size that a kernel or a page counts in.
TEST(PromptLengths, GiveWhatSingleTokensGive) {
  const auto model = open_tiny("cpu", /*exact=*/true);
  ASSERT_NE(model, nullptr);
  const auto tokens = ids(test::kThreadSanitizer ? 65 : 1023, 5);
  std::vector<std::vector<float>> one_by_one;
  auto stepwise = Sequence::create(model->pool());
  ASSERT_TRUE(stepwise.ok());
  for (const TokenId token : tokens) one_by_one.push_back(feed(*model, *stepwise, {token}));
  const auto check = [&](std::size_t length, std::int64_t chunk) {
    auto sequence = Sequence::create(model->pool());
    ASSERT_TRUE(sequence.ok());
    const std::vector<TokenId> prompt(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(length));
    const auto logits = feed(*model, *sequence, prompt, chunk);
    float largest = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      largest = std::max(largest, std::abs(logits[i] - one_by_one[length - 1][i]));
    }
    EXPECT_LT(largest, 5e-3F) << length << " tokens in steps of " << chunk;
  };
  if (test::kThreadSanitizer) return check(65, 7);
  for (std::size_t length = 1; length <= 200; ++length) check(length, 0);
  for (const std::size_t length : {255, 256, 257, 258, 259, 511, 512, 513, 514, 1023}) check(length, 0);
  for (const std::int64_t chunk : {1, 7, 32, 64, 256}) {
    for (const std::size_t length : {2, 63, 64, 65, 129, 200, 259}) check(length, chunk);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, SequenceOn, ::testing::Values("reference", "cpu"),
                         [](const auto& backend) { return std::string(backend.param); });

}  // namespace
}  // namespace lily
