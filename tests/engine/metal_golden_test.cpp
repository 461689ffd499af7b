// Whole models through the Metal kernels on the emulated device: the reference checkpoints against
// transformers' goldens, the tiny model against the reference and CPU backends.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/loaded_model.h"
#include "model/forward.h"
#include "tests/engine/goldens.h"

namespace lily {
namespace {

using testing::Agreement;
using testing::compare;
using testing::Goldens;

Result<std::unique_ptr<LoadedModel>> open(const std::string& model, const BackendOptions& backend) {
  ModelOptions options;
  options.model = model;
  options.backend = backend;
  options.max_seq = 1024;
  options.max_rows = 520;
  return LoadedModel::open(options);
}

/// Like testing::logits_of(), a decoding step a token.
std::vector<float> decoded_logits_of(LoadedModel& model, std::span<const TokenId> tokens) {
  auto sequence = Sequence::create(model.pool());
  EXPECT_TRUE(sequence.ok());
  std::vector<float> all;
  std::vector<float> logits(static_cast<std::size_t>(model.shapes().vocab));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    auto segment = sequence->extend(tokens.subspan(i, 1), Phase::kDecode, Logits::kLast);
    EXPECT_TRUE(segment.ok());
    const auto done = forward(model.backend(), model.weights(), Batch{.segments = {*segment}}, logits);
    EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message);
    sequence->advance();
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

/// The mean over rows of several comparisons.
struct Tally {
  double kl = 0;
  double top1 = 0;
  double rows = 0;
  void add(const Agreement& a, std::size_t count) {
    kl += a.mean_kl * static_cast<double>(count);
    top1 += a.top1 * static_cast<double>(count);
    rows += static_cast<double>(count);
  }
  void print(const char* what) const {
    std::printf("%s: mean KL %.2e, top-1 %.2f %% of %.0f rows\n", what, kl / rows, 100 * top1 / rows, rows);
  }
};

class MetalGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(MetalGolden, DistributionsAgree) {
  const std::string path = testing::reference_path(GetParam());
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "NOT CHECKED: no reference checkpoint " << path;
  auto opened = open(path, {.name = "metal-emulated"});
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  LoadedModel& model = **opened;
  const Goldens goldens(GetParam());
  const auto vocab = static_cast<std::size_t>(model.shapes().vocab);
  Tally tally;
  const auto add = [&](int length, const std::vector<float>& logits) {
    const auto expected = goldens.logits(length);
    ASSERT_GE(logits.size(), expected.size());
    tally.add(compare(expected, std::span(logits).last(expected.size()), vocab), expected.size() / vocab);
  };
  for (const int length : {63, 64, 65, 200})
    add(length, testing::logits_of(model, goldens.tokens(length), 0));
  add(200, testing::logits_of(model, goldens.tokens(200), 64));
  add(65, decoded_logits_of(model, goldens.tokens(65)));
  tally.print(GetParam());
  EXPECT_LT(tally.kl / tally.rows, 2e-2);
  EXPECT_GT(tally.top1 / tally.rows, 0.96);
}
INSTANTIATE_TEST_SUITE_P(Reference, MetalGolden, ::testing::Values("small", "wide"));

/// Text that the tiny model was not trained on.
std::string heldout_text() {
  std::ifstream file(LILY_SOURCE_DIR "/models/tiny/heldout.txt");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(MetalTiny, AgreesWithTheReferenceOnText) {
  auto expected = open("tiny", {.name = "reference"});
  auto got = open("tiny", {.name = "metal-emulated"});
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  ASSERT_TRUE(got.ok()) << got.error().message;
  const auto all = (*expected)->tokenizer()->encode(heldout_text());
  const std::span<const TokenId> tokens(all);
  ASSERT_GT(tokens.size(), 1000U);
  const auto vocab = static_cast<std::size_t>((*expected)->shapes().vocab);
  Tally prefill;
  for (std::size_t at = 0; at < 400; at += 200) {
    const auto piece = tokens.subspan(at, 200);
    prefill.add(compare(testing::logits_of(**expected, piece, 0), testing::logits_of(**got, piece, 0), vocab),
                piece.size());
  }
  prefill.print("tiny, prefill");
  EXPECT_LT(prefill.kl / prefill.rows, 1e-3);
  EXPECT_GT(prefill.top1 / prefill.rows, 0.99);

  Tally decode;
  const auto piece = tokens.subspan(400, 100);
  decode.add(compare(decoded_logits_of(**expected, piece), decoded_logits_of(**got, piece), vocab),
             piece.size());
  decode.print("tiny, decoding");
  EXPECT_LT(decode.kl / decode.rows, 1e-3);
  EXPECT_GT(decode.top1 / decode.rows, 0.99);
}

std::vector<TokenId> greedy(LoadedModel& model, std::span<const TokenId> prompt, std::size_t count) {
  auto sequence = Sequence::create(model.pool());
  EXPECT_TRUE(sequence.ok());
  std::vector<float> logits;
  EXPECT_TRUE(model.prefill(*sequence, prompt, Logits::kLast, logits).ok());
  logits.resize(static_cast<std::size_t>(model.vocab_end()));
  auto next = static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
  std::vector<TokenId> generated = {next};
  while (generated.size() < count) {
    const auto done = model.decode_greedy(std::span(&*sequence, 1), std::span(&next, 1), logits);
    EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message);
    if (!done.ok()) break;
    generated.push_back(next);
  }
  return generated;
}

// 50 prompts of 4 to 20 tokens.
TEST(MetalTiny, ContinuesPromptsLikeTheCpu) {
  auto expected = open("tiny", {.name = "cpu", .exact = true});
  auto got = open("tiny", {.name = "metal-emulated"});
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  ASSERT_TRUE(got.ok()) << got.error().message;
  const auto all = (*expected)->tokenizer()->encode(heldout_text());
  const std::span<const TokenId> tokens(all);
  for (std::size_t i = 0; i < 50; ++i) {
    const auto prompt = tokens.subspan(i * 90, 4 + i % 17);
    EXPECT_EQ(greedy(**got, prompt, 6), greedy(**expected, prompt, 6)) << "prompt " << i;
  }
}

}  // namespace
}  // namespace lily
