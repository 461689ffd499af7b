#include "checkpoint/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/checkpoint/test_checkpoint.h"

namespace lily {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ModelFiles, ReadsADirectory) {
  const testing::TempDir dir;
  testing::write_bytes(dir.path() / "b.json", "{}");
  testing::write_bytes(dir.path() / "a.txt", "text");
  std::filesystem::create_directory(dir.path() / "folder");
  const auto files = ModelFiles::open(dir.string());
  ASSERT_TRUE(files.ok()) << files.error().message;
  EXPECT_THAT((*files)->names(), ElementsAre("a.txt", "b.json"));
  EXPECT_EQ((*files)->name(), dir.path().filename());
  EXPECT_EQ((*files)->text("a.txt").value(), "text");
  EXPECT_TRUE((*files)->contains("a.txt"));
  EXPECT_FALSE((*files)->contains("folder"));
  EXPECT_EQ((*files)->bytes("c").error().code, ErrorCode::kNotFound);
}

TEST(ModelFiles, NameIgnoresATrailingSlash) {
  const testing::TempDir dir;
  EXPECT_EQ(ModelFiles::open(dir.string() + "/").value()->name(), dir.path().filename());
}

TEST(ModelFiles, FollowsSymbolicLinksAsDownloadCachesHaveThem) {
  const testing::TempDir dir;
  std::filesystem::create_directory(dir.path() / "blobs");
  std::filesystem::create_directory(dir.path() / "snapshot");
  testing::write_bytes(dir.path() / "blobs" / "0123", "{}");
  std::filesystem::create_symlink("../blobs/0123", dir.path() / "snapshot" / "config.json");
  const auto files = ModelFiles::open(dir.string() + "/snapshot");
  ASSERT_TRUE(files.ok());
  EXPECT_EQ((*files)->text("config.json").value(), "{}");
  EXPECT_THAT((*files)->names(), ElementsAre("config.json"));
}

TEST(ModelFiles, RefusesPaths) {
  const testing::TempDir dir;
  testing::write_bytes(dir.path() / "secret", "x");
  std::filesystem::create_directory(dir.path() / "model");
  const auto files = ModelFiles::open(dir.string() + "/model");
  ASSERT_TRUE(files.ok());
  const std::vector<std::string> names = {
      "../secret", "..", ".", "", "/etc/hostname", "a/b", std::string("a\0b", 3), "..\\secret"};
  for (const std::string& name : names) {
    EXPECT_FALSE((*files)->contains(name)) << name;
    EXPECT_FALSE((*files)->bytes(name).ok()) << name;
  }
  EXPECT_EQ((*files)->bytes("../secret").error().code, ErrorCode::kInvalidArgument);
}

TEST(ModelFiles, NamesWhatIsNotAModel) {
  const testing::TempDir dir;
  const auto missing = ModelFiles::open(dir.string() + "/none");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr(dir.string() + "/none"));
  testing::write_bytes(dir.path() / "file.gguf", "x");
  EXPECT_EQ(ModelFiles::open(dir.string() + "/file.gguf").error().code, ErrorCode::kInvalidArgument);
}

// B134: cut while it is mapped.
TEST(ModelFilesDeathTest, AFileCutShortInUseEndsTheProcessByName) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer has a SIGBUS handler of its own";
#endif
  const testing::TempDir dir;
  testing::write_bytes(dir.path() / "model.safetensors", std::string(1 << 20, 'x'));
  const auto files = ModelFiles::open(dir.string()).value();
  const auto bytes = files->bytes("model.safetensors").value();
  EXPECT_EXIT(
      {
        std::filesystem::resize_file(dir.path() / "model.safetensors", 100);
        const volatile std::byte last = bytes[bytes.size() - 1];
        (void)last;
      },
      ::testing::ExitedWithCode(1), "model.safetensors: cut short while it was in use");
}

TEST(ModelFiles, EmbeddedModelIsTheFolder) {
  const std::filesystem::path source = LILY_SOURCE_DIR "/models/tiny";
  const auto files = ModelFiles::open("tiny");
  ASSERT_TRUE(files.ok()) << files.error().message;
  EXPECT_EQ((*files)->name(), "tiny");
  EXPECT_TRUE((*files)->contains("config.json"));
  for (const std::string& name : (*files)->names()) {
    EXPECT_TRUE((*files)->text(name).value() == testing::read_bytes(source / name)) << name;
  }
  EXPECT_EQ((*files)->bytes("none").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace lily
