#include "checkpoint/layout.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "checkpoint/checkpoint.h"
#include "checkpoint/synth_config.h"
#include "tests/checkpoint/test_checkpoint.h"

namespace lily {
namespace {

std::vector<ShardPlan> published_shards() {
  const SynthPreset preset = find_synth_preset("qwen3.6-35b-a3b").value();
  const ModelConfig config = parse_config(synth_config_json(preset)).value();
  return cut_into_shards(published_layout(config), preset.omitted_bytes);
}

TEST(Layout, PublishedBytes) {
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
  for (const ShardPlan& shard : published_shards()) {
    tensors += std::ssize(shard);
    for (const TensorPlan& tensor : shard) bytes += tensor.bytes();
  }
  EXPECT_EQ(tensors, 1757);
  EXPECT_EQ(bytes, 19508787456);
}

TEST(Layout, NamesAndShardsAreThePublishedIndex) {
  const std::string path =
      LILY_SOURCE_DIR "/../shared/data/qwen3.6-35b-a3b-4bit/model.safetensors.index.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no published index at " << path;
  nlohmann::json published = nlohmann::json::parse(testing::read_bytes(path))["weight_map"];
  for (auto entry = published.begin(); entry != published.end();) {
    entry = is_unused_family(entry.key()) ? published.erase(entry) : std::next(entry);
  }
  const nlohmann::json ours = nlohmann::json::parse(shard_index(published_shards()));
  EXPECT_EQ(ours["weight_map"], published);
  EXPECT_EQ(ours["metadata"]["total_size"], 19508787456);
}

TEST(Layout, ShardsAreCutBeforeTheTensorThatWouldNotFit) {
  constexpr std::int64_t kGiB = std::int64_t{1} << 30U;
  const auto tensor = [](std::string name, std::int64_t bytes) {
    return TensorPlan{std::move(name), DType::kU8, {bytes}};
  };
  const auto shards = cut_into_shards(
      {tensor("a", 2 * kGiB), tensor("b", 3 * kGiB), tensor("c", 1), tensor("d", 6 * kGiB), tensor("e", 1)},
      0);
  ASSERT_EQ(shards.size(), 4U);
  EXPECT_EQ(shards[0].size(), 2U);  // exactly 5 GiB fit
  EXPECT_EQ(shards[1][0].name, "c");
  EXPECT_EQ(shards[2][0].name, "d");
  EXPECT_EQ(cut_into_shards({tensor("a", 2 * kGiB)}, 4 * kGiB).size(),
            1U);  // what is omitted makes no empty shard
}

}  // namespace
}  // namespace lily
