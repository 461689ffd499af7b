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
  options.slots = 3;
  auto model = LoadedModel::open(options);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return model.ok() ? std::move(model).value() : nullptr;
}

TEST(Benchmark, PromptIsTheContracts) {
  // 2654435761 = 0x9e3779b1; 2 * that mod 2^32 = 1013904226.
  EXPECT_THAT(benchmark_prompt(0, 3, 248320), ElementsAre(0, 2654435761U % 248320, 1013904226 % 248320));
  EXPECT_THAT(benchmark_prompt(1, 2, 248320), ElementsAre(2654435761U % 248320, 1013904226 % 248320));
}

TEST(Benchmark, MedianOfEvenAndOddCounts) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median({5}), 5);
}

TEST(Benchmark, RowsAreMediansOverTheirRuns) {
  BenchmarkRow row{.shape = {.prompt = 100}, .runs = {}, .bytes_per_token = 1e9};
  for (const double seconds : {1.0, 2.0, 4.0}) {
    row.runs.push_back(
        {.read = 100, .prefill_seconds = seconds, .decode_seconds = seconds / 5, .decoded = 2});
  }
  EXPECT_DOUBLE_EQ(row.prefill_tokens_per_second(), 50);
  EXPECT_DOUBLE_EQ(row.decode_seconds(), 0.4);
  EXPECT_DOUBLE_EQ(row.decode_tokens_per_second(), 5);
  EXPECT_DOUBLE_EQ(row.bytes_per_second(), 5e9);
  EXPECT_DOUBLE_EQ(row.spread(), 3);
}

TEST(Benchmark, APromptTokenIsMultipliedWithWhatItIsSentThrough) {
  const auto model = tiny();
  ASSERT_NE(model, nullptr);
  const Shapes& s = model->shapes();
  const std::int64_t recurrent =
      s.hidden * (s.conv_channels() + 2 * s.linear_value_dim() + 2 * s.linear_value_heads);
  const std::int64_t attention = s.hidden * (3 * s.query_dim() + 2 * s.kv_dim());
  const std::int64_t moe =
      s.hidden * (s.experts + 1 + 3 * s.experts_per_token * s.expert_width + 3 * s.shared_width);
  const auto products = static_cast<double>(s.linear_layers * recurrent + s.attention_layers * attention +
                                            (s.linear_layers + s.attention_layers) * moe);
  const double counted = prompt_multiplies(model->weights());
  EXPECT_GE(counted, products);
  EXPECT_LT(counted, 1.01 * products);  // gains, taps and gates of the mixers
  const BenchmarkRow row{
      .shape = {.prompt = 100}, .runs = {{.read = 100, .prefill_seconds = 2}}, .multiplies_per_token = 3e9};
  EXPECT_DOUBLE_EQ(row.multiplies_per_second(), 150e9);
}

TEST(Benchmark, RowsWhoseRunsDifferAreRefused) {
  const BenchmarkRun run{
      .read = 8, .prefill_seconds = 1, .decode_seconds = 1, .decoded = 1, .tokens = {1, 2}};
  BenchmarkRow row{.shape = {.prompt = 8}, .runs = {run, run}};
  EXPECT_EQ(row.refused(), "");
  row.runs[1].decode_seconds = 1.029;
  EXPECT_EQ(row.refused(), "");
  row.runs[1].decode_seconds = 1.04;
  EXPECT_EQ(row.refused(), "rounds differ by 4.0 %");
  row.runs[1].tokens = {1, 3};
  EXPECT_THAT(row.refused(), HasSubstr("different tokens"));
}

TEST(Benchmark, AsksForRoomForEveryShape) {
  const BenchmarkRoom room = benchmark_room(
      {.shapes = {{.prompt = 300}, {.prompt = 50, .cached = 1000}, {.prompt = 200, .streams = 4}},
       .decode = 60,
       .progress = {}});
  EXPECT_EQ(room.slots, 4);
  EXPECT_EQ(room.max_seq, 1110);
  EXPECT_EQ(room.kv_tokens, 1280 + 1024);  // the turn and what it goes on from
}

TEST(Benchmark, WarmTurnsGiveTheTokensOfOneLongPrompt) {
  const auto model = tiny();
  ASSERT_NE(model, nullptr);
  const auto rows = run_benchmark(
      *model,
      {.shapes = {{.prompt = 30}, {.prompt = 10, .cached = 20}}, .decode = 4, .rounds = 2, .progress = {}});
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_EQ((*rows)[0].runs[0].tokens, (*rows)[1].runs[0].tokens);
  EXPECT_EQ((*rows)[1].runs[0].tokens, (*rows)[1].runs[1].tokens);
  EXPECT_EQ((*rows)[1].runs[0].read, 10);
}

TEST(Benchmark, StreamsGiveTheTokensTheyGiveAlone) {
  const auto model = tiny();
  ASSERT_NE(model, nullptr);
  const auto rows = run_benchmark(
      *model,
      {.shapes = {{.prompt = 12}, {.prompt = 12, .streams = 3}}, .decode = 4, .rounds = 1, .progress = {}});
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  const BenchmarkRun& alone = (*rows)[0].runs[0];
  const BenchmarkRun& together = (*rows)[1].runs[0];
  ASSERT_EQ(together.tokens.size(), 15U);
  EXPECT_EQ(together.decoded, 12);
  EXPECT_EQ(together.read, 36);
  for (std::size_t step = 0; step < alone.tokens.size(); ++step) {
    EXPECT_EQ(together.tokens[3 * step], alone.tokens[step]) << step;
  }
  EXPECT_EQ((*rows)[1].bytes_per_token, 0);
}

TEST(Benchmark, RunsEveryContextEveryRound) {
  const auto model = tiny();
  ASSERT_NE(model, nullptr);
  std::vector<std::string> seen;
  BenchmarkOptions options{
      .shapes = {{.prompt = 8}, {.prompt = 20}}, .decode = 3, .rounds = 2, .chunk = 0, .progress = {}};
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
  const auto rows = run_benchmark(
      *model, {.shapes = {{.prompt = 38}}, .decode = 3, .rounds = 1, .chunk = 0, .progress = {}});
  ASSERT_FALSE(rows.ok());
  EXPECT_THAT(rows.error().message, HasSubstr("context 38: expected 1 to 37"));
}

TEST(Benchmark, StopsWhenAsked) {
  const auto model = tiny();
  ASSERT_NE(model, nullptr);
  const auto rows = run_benchmark(
      *model,
      {.shapes = {{.prompt = 8}}, .decode = 3, .rounds = 1, .chunk = 0, .progress = [](const std::string&) {
         return false;
       }});
  ASSERT_FALSE(rows.ok());
  EXPECT_EQ(rows.error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace lily
