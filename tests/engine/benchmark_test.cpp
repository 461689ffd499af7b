#include "engine/benchmark.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lily {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::unique_ptr<LoadedModel> tiny() {
  ModelOptions options;
  options.backend.name = "reference";
  options.max_seq = 40;
  auto model = LoadedModel::open(options);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return model.ok() ? std::move(model).value() : nullptr;
}

TEST(Benchmark, PromptIsTheContracts) {
  // 2654435761 = 0x9e3779b1; 2 * that mod 2^32 = 1013904226.
  EXPECT_THAT(benchmark_prompt(3, 248320), ElementsAre(0, 2654435761U % 248320, 1013904226 % 248320));
}

TEST(Benchmark, MedianOfEvenAndOddCounts) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median({5}), 5);
}

TEST(Benchmark, RowsAreMediansOverTheirRuns) {
  BenchmarkRow row{.context = 100, .runs = {}, .bytes_per_token = 1e9};
  for (const double seconds : {1.0, 2.0, 4.0}) {
    row.runs.push_back(
        {.prefill_seconds = seconds, .step_seconds = {seconds / 10, seconds / 10}, .tokens = {}});
  }
  EXPECT_DOUBLE_EQ(row.prefill_tokens_per_second(), 50);
  EXPECT_DOUBLE_EQ(row.decode_seconds(), 0.4);
  EXPECT_DOUBLE_EQ(row.decode_tokens_per_second(), 5);
  EXPECT_DOUBLE_EQ(row.bytes_per_second(), 5e9);
  EXPECT_DOUBLE_EQ(row.spread(), 3);
}

TEST(Benchmark, RunsEveryContextEveryRound) {
  const auto model = tiny();
  ASSERT_NE(model, nullptr);
  std::vector<std::string> seen;
  BenchmarkOptions options{.contexts = {8, 20}, .decode = 3, .rounds = 2, .chunk = 0, .progress = {}};
  options.progress = [&](const std::string& what) {
    if (seen.empty() || seen.back() != what) seen.push_back(what);
    return true;
  };
  const auto rows = run_benchmark(*model, options);
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  ASSERT_EQ(rows->size(), 2U);
  for (const BenchmarkRow& row : *rows) {
    ASSERT_EQ(row.runs.size(), 2U);
    EXPECT_EQ(row.runs[0].tokens.size(), 4U);
    EXPECT_EQ(row.runs[0].tokens, row.runs[1].tokens);
    EXPECT_EQ(row.runs[0].step_seconds.size(), 3U);
  }
  // Every second round goes backwards, and each timed run follows a warm-up of its shape.
  EXPECT_THAT(seen, ElementsAre("context 8, round 1 of 2, warm-up", "context 8, round 1 of 2",
                                "context 20, round 1 of 2, warm-up", "context 20, round 1 of 2",
                                "context 20, round 2 of 2, warm-up", "context 20, round 2 of 2",
                                "context 8, round 2 of 2, warm-up", "context 8, round 2 of 2"));
}

TEST(Benchmark, LongerContextsMoveMoreBytes) {
  const auto model = tiny();
  ASSERT_NE(model, nullptr);
  const double none = decode_bytes(*model, 0);
  EXPECT_GT(none, static_cast<double>(model->weights().bytes_per_token()));
  const double row = static_cast<double>(model->backend().page_bytes()) / kKvPageTokens;
  EXPECT_DOUBLE_EQ(decode_bytes(*model, 100) - none, 100 * row);
}

TEST(Benchmark, RefusesContextsThatDoNotFit) {
  const auto model = tiny();
  ASSERT_NE(model, nullptr);
  const auto rows =
      run_benchmark(*model, {.contexts = {38}, .decode = 3, .rounds = 1, .chunk = 0, .progress = {}});
  ASSERT_FALSE(rows.ok());
  EXPECT_THAT(rows.error().message, HasSubstr("context 38: expected 1 to 37"));
}

TEST(Benchmark, StopsWhenAsked) {
  const auto model = tiny();
  ASSERT_NE(model, nullptr);
  const auto rows = run_benchmark(
      *model, {.contexts = {8}, .decode = 3, .rounds = 1, .chunk = 0, .progress = [](const std::string&) {
                 return false;
               }});
  ASSERT_FALSE(rows.ok());
  EXPECT_EQ(rows.error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace lily
