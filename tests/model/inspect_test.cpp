#include "model/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/shards.h"
#include "tests/checkpoint/test_checkpoint.h"

namespace lily {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::in_model;
using testing::TempDir;
using testing::TestCheckpoint;

ModelReport inspect(const TestCheckpoint& checkpoint) {
  const TempDir dir;
  checkpoint.write(dir.path());
  return inspect_model(dir.string()).value();
}

TEST(Inspect, CountsWhatThereIs) {
  TestCheckpoint made;
  made.add("vision_tower.x", DType::kF32, {10});
  const ModelReport report = inspect(made);
  ASSERT_TRUE(report.loads()) << report.problems.front().message;
  EXPECT_EQ(report.tensors, 183);
  EXPECT_EQ(report.skipped_tensors, 1);
  EXPECT_EQ(report.skipped_bytes, 40);
  // Three layers of 2 heads of 128 x 128 floats and 3 rows of 512 bf16; one layer of K and V rows of 256
  // bf16.
  EXPECT_EQ(report.state_bytes, 3 * (2 * 128 * 128 * 4 + 3 * 512 * 2));
  EXPECT_EQ(report.kv_bytes_per_token, 2 * 256 * 2);
  ASSERT_EQ(report.contexts.size(), 1U);
  const ContextCost& cost = report.contexts.front();
  EXPECT_EQ(cost.tokens, 1024);
  EXPECT_EQ(cost.kv_bytes, 1024 * 1024);
  EXPECT_EQ(cost.memory_bytes, report.stored_bytes.total() + report.state_bytes + cost.kv_bytes);
  EXPECT_EQ(cost.token_bytes, report.token_bytes.total() + 2 * report.state_bytes + cost.kv_bytes);
}

TEST(Inspect, CountsWhatEightBitKvCosts) {
  const TempDir dir;
  TestCheckpoint().write(dir.path());
  const ModelReport report = inspect_model(dir.string(), KvType::kQ8).value();
  EXPECT_EQ(report.kv_bytes_per_token, 2 * (256 + 4 * 4));  // a scale for 64 values
  EXPECT_EQ(report.contexts.front().kv_bytes, 1024 * report.kv_bytes_per_token);
  EXPECT_THAT(format_report(report), HasSubstr("(q8 KV"));
}

TEST(Inspect, ContextsReachTheModelsLimit) {
  TestCheckpoint made;
  made.config["text_config"]["max_position_embeddings"] = 40000;
  std::vector<std::int64_t> tokens;
  for (const ContextCost& cost : inspect(made).contexts) tokens.push_back(cost.tokens);
  EXPECT_THAT(tokens, ::testing::ElementsAre(4096, 32768, 40000));
}

TEST(Inspect, GoesOnPastWhatIsWrong) {
  TestCheckpoint made;
  made.remove(in_model("layers.0.linear_attn.A_log"));
  made.reshape(in_model("norm.weight"), DType::kBF16, {1});
  made.index_edits["ghost"] = shard_name(1, 3);
  const ModelReport report = inspect(made);
  EXPECT_EQ(report.problems.size(), 3U);
  EXPECT_TRUE(report.config.has_value());
  EXPECT_THAT(format_report(report), AllOf(HasSubstr("does not load"), HasSubstr("ghost"), HasSubstr("A_log"),
                                           HasSubstr("norm.weight"), HasSubstr("4 layers")));
}

TEST(Inspect, ABadConfigIsTheOneProblem) {
  TestCheckpoint made;
  made.config["model_type"] = "llama";
  const ModelReport report = inspect(made);
  ASSERT_EQ(report.problems.size(), 1U);
  EXPECT_FALSE(report.config.has_value());
  EXPECT_THAT(format_report(report), HasSubstr("found \"llama\""));
}

TEST(Inspect, NoDirectoryIsAnError) {
  EXPECT_EQ(inspect_model("/nonexistent").error().code, ErrorCode::kNotFound);
}

TEST(Inspect, ReportOfAModelThatLoads) {
  const std::string text = format_report(inspect(TestCheckpoint()));
  for (const char* part : {"qwen3_5_moe", "routed experts", "read a token", "1024", "\nloads\n"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

}  // namespace
}  // namespace lily
