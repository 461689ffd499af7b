#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/shards.h"
#include "tests/checkpoint/test_checkpoint.h"

namespace lily {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::in_model;
using ::testing::Not;
using testing::TempDir;
using testing::TestCheckpoint;

const std::string kNorm = in_model("norm.weight");

Result<Checkpoint> open(const TempDir& dir) {
  LILY_TRY(const auto files, ModelFiles::open(dir.string()));
  return Checkpoint::open(files);
}

Result<Checkpoint> open(const TestCheckpoint& checkpoint) {
  const TempDir dir;
  checkpoint.write(dir.path());
  return open(dir);  // mapped files outlive their names
}

TEST(Checkpoint, OpensAllShards) {
  const auto checkpoint = open(TestCheckpoint());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->tensors().size(), 3U * 45 + 40 + 7);
  EXPECT_EQ(checkpoint->config().num_experts, 8);
  EXPECT_TRUE(checkpoint->contains(kNorm));
  EXPECT_FALSE(checkpoint->contains("norm"));
}

TEST(Checkpoint, LedgerNamesWhatNobodyTook) {
  auto checkpoint = open(TestCheckpoint());
  ASSERT_TRUE(checkpoint.ok());
  const auto missing = checkpoint->take("none");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("none"));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : checkpoint->tensors()) names.push_back(name);
  for (const std::string& name : names) {
    if (name == kNorm) continue;
    EXPECT_TRUE(checkpoint->take(name).ok()) << name;
  }
  EXPECT_THAT(checkpoint->check_all_taken().error().message, HasSubstr(kNorm));
  EXPECT_EQ(checkpoint->take(kNorm)->shape, std::vector<std::int64_t>{64});
  EXPECT_TRUE(checkpoint->check_all_taken().ok());
}

TEST(Checkpoint, KnownUnusedFamilies) {
  for (const char* name :
       {"vision_tower.blocks.0.x", "model.visual.x", "visual.x", "mtp.fc.weight", "model.mtp.x",
        "language_model.mtp.norm.weight", "language_model.vision_tower.x"}) {
    EXPECT_TRUE(is_unused_family(name)) << name;
  }
  for (const char* name :
       {"language_model.model.norm.weight", "mtp", "vision", "model.layers.0.mtp.x", "lm_head.mtp."}) {
    EXPECT_FALSE(is_unused_family(name)) << name;
  }
}

// B126
TEST(Checkpoint, MissingShardsAreListed) {
  const TempDir dir;
  TestCheckpoint().write(dir.path());
  std::filesystem::remove(dir.path() / shard_name(2, 3));
  std::filesystem::rename(dir.path() / shard_name(3, 3), dir.path() / (shard_name(3, 3) + ".incomplete"));
  const auto checkpoint = open(dir);
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_EQ(checkpoint.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(
      checkpoint.error().message,
      AllOf(HasSubstr(dir.string()), HasSubstr("2 of 3 shards are missing"), HasSubstr(shard_name(2, 3)),
            HasSubstr(shard_name(3, 3)), Not(HasSubstr(shard_name(1, 3)))));
}

// B126
TEST(Checkpoint, RenamedShardIsMissing) {
  const TempDir dir;
  TestCheckpoint().write(dir.path());
  std::filesystem::rename(dir.path() / shard_name(2, 3), dir.path() / shard_name(4, 4));
  EXPECT_THAT(open(dir).error().message, HasSubstr("1 of 3 shards are missing: " + shard_name(2, 3)));
}

// B126
TEST(Checkpoint, EmptyShardIsRefused) {
  const TempDir dir;
  TestCheckpoint().write(dir.path());
  testing::write_bytes(dir.path() / shard_name(2, 3), "");
  EXPECT_THAT(open(dir).error().message, HasSubstr(shard_name(2, 3) + ": 0 bytes"));
}

// B126
TEST(Checkpoint, UnrelatedFilesBesideTheShardsDoNotMatter) {
  const TempDir dir;
  TestCheckpoint().write(dir.path());
  testing::write_bytes(dir.path() / "golden.safetensors", "not one of ours");
  testing::write_bytes(dir.path() / (shard_name(1, 3) + ".incomplete"), "x");
  const auto checkpoint = open(dir);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.error().message;
}

// B126
TEST(Checkpoint, WithoutAnIndexANumberedSetMustBeComplete) {
  TestCheckpoint made;
  made.with_index = false;
  const TempDir dir;
  made.write(dir.path());
  const auto complete = open(dir);
  ASSERT_TRUE(complete.ok()) << complete.error().message;
  EXPECT_EQ(complete->tensors().size(), 3U * 45 + 40 + 7);
  std::filesystem::remove(dir.path() / shard_name(1, 3));
  EXPECT_THAT(open(dir).error().message, AllOf(HasSubstr("not complete"), HasSubstr(shard_name(1, 3))));
  testing::write_bytes(dir.path() / shard_name(1, 2), "");
  EXPECT_THAT(open(dir).error().message, HasSubstr("several numbered sets"));
}

TEST(Checkpoint, WithoutAnIndexASingleFileIsEnough) {
  TestCheckpoint made;
  made.with_index = false;
  for (std::size_t i = 1; i < 3; ++i) {
    std::ranges::move(made.shards[i], std::back_inserter(made.shards[0]));
  }
  made.shards.resize(1);
  const auto checkpoint = open(made);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.error().message;
}

TEST(Checkpoint, ADirectoryWithoutShardsSaysWhatItLacks) {
  const TempDir dir;
  testing::write_bytes(dir.path() / "config.json", TestCheckpoint().config.dump());
  EXPECT_THAT(open(dir).error().message,
              HasSubstr("has none of model.safetensors.index.json, model.safetensors"));
  std::filesystem::remove(dir.path() / "config.json");
  EXPECT_EQ(open(dir).error().code, ErrorCode::kNotFound);
  EXPECT_THAT(open(dir).error().message, HasSubstr("config.json"));
}

// B128
TEST(Checkpoint, IndexThatPointsToTheWrongShard) {
  TestCheckpoint made;
  made.index_edits[kNorm] = shard_name(1, 3);
  EXPECT_THAT(open(made).error().message,
              HasSubstr(fmt::format("{} is in {}, not in {}", kNorm, shard_name(3, 3), shard_name(1, 3))));
}

// B128
TEST(Checkpoint, IndexThatListsATensorWhichIsNowhere) {
  TestCheckpoint made;
  made.index_edits["ghost"] = shard_name(2, 3);
  const auto checkpoint = open(made);
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_EQ(checkpoint.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(checkpoint.error().message, HasSubstr("ghost is not in " + shard_name(2, 3)));
}

// B128: such a tensor is loaded, with a warning. The index's total_size (1, in these tests) is never trusted.
TEST(Checkpoint, IndexThatLeavesATensorOut) {
  TestCheckpoint made;
  made.index_edits[kNorm] = "";
  const auto checkpoint = open(made);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_TRUE(checkpoint->contains(kNorm));
}

TEST(Checkpoint, TensorInTwoShards) {
  TestCheckpoint made;
  made.shards[0].push_back(made.tensor(kNorm));
  EXPECT_THAT(open(made).error().message,
              AllOf(HasSubstr(kNorm), HasSubstr(shard_name(1, 3)), HasSubstr(shard_name(3, 3))));
}

TEST(Checkpoint, ShardNamesAreNotPaths) {
  for (const char* file : {"../x.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", "x.bin",
                           "a\n.safetensors", "sub\\x.safetensors"}) {
    const TempDir dir;
    TestCheckpoint().write(dir.path());
    const nlohmann::json index = {{"weight_map", {{"t", file}}}};
    testing::write_bytes(dir.path() / "model.safetensors.index.json", index.dump());
    const auto checkpoint = open(dir);
    ASSERT_FALSE(checkpoint.ok()) << file;
    EXPECT_EQ(checkpoint.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(checkpoint.error().message,
                HasSubstr("weight_map: t: expected the name of a .safetensors file"));
  }
}

TEST(Checkpoint, IndexThatIsNoIndex) {
  for (const char* text :
       {"", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})", R"({"weight_map":{"a":1}})",
        R"({"weight_map":{"a":"x.safetensors","a":"y.safetensors"}})"}) {
    const TempDir dir;
    TestCheckpoint().write(dir.path());
    testing::write_bytes(dir.path() / "model.safetensors.index.json", text);
    const auto checkpoint = open(dir);
    ASSERT_FALSE(checkpoint.ok()) << text;
    EXPECT_THAT(checkpoint.error().message, HasSubstr("model.safetensors.index.json: "));
  }
}

TEST(Checkpoint, TellsAllThatIsWrongAtOnce) {
  const TempDir dir;
  TestCheckpoint().write(dir.path());
  std::filesystem::remove(dir.path() / shard_name(1, 3));
  testing::write_bytes(dir.path() / shard_name(2, 3), "short");
  EXPECT_THAT(open(dir).error().message,
              AllOf(HasSubstr(shard_name(1, 3)), HasSubstr(shard_name(2, 3) + ": 5 bytes")));
}

}  // namespace
}  // namespace lily
