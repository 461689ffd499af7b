#include "base/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace lily {
namespace {

class AtomicFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / "atomic_file_test";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::ptrdiff_t files() const {
    return std::distance(std::filesystem::directory_iterator(folder_), {});
  }

  std::filesystem::path folder_;
};

TEST_F(AtomicFileTest, AppearsAtCommitAndReplacesWhatWasThere) {
  const auto path = folder_ / "f";
  ASSERT_TRUE(write_file(path, "old").ok());
  auto file = AtomicFile::create(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_TRUE(file->write("new").ok());
  std::string text;
  std::ifstream(path) >> text;
  EXPECT_EQ(text, "old");
  ASSERT_TRUE(file->commit().ok());
  std::ifstream(path) >> text;
  EXPECT_EQ(text, "new");
  EXPECT_EQ(files(), 1);
}

TEST_F(AtomicFileTest, LeavesNothingWithoutCommit) {
  {
    auto file = AtomicFile::create(folder_ / "f");
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->write("half").ok());
    EXPECT_EQ(files(), 1);
  }
  EXPECT_EQ(files(), 0);
}

TEST_F(AtomicFileTest, FullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full on this system";
  const auto result = write_file("/dev/full", "text");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(result.error().message, testing::HasSubstr("/dev/full: cannot write: No space left"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST_F(AtomicFileTest, NamesThePathItCannotWrite) {
  const auto missing = write_file(folder_ / "no" / "f", "text");
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, testing::HasSubstr((folder_ / "no" / "f").string()));
  EXPECT_FALSE(write_file(folder_, "text").ok());
}

}  // namespace
}  // namespace lily
