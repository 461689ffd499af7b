// The sources that macOS builds carry: every file of kernels, whole, with its headers in it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "base/embedded.h"

namespace lily {

std::span<const EmbeddedFile> embedded_metal_kernels();

namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string text_of(const EmbeddedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()};
}

TEST(EmbeddedKernels, AreAllThatTheFolderHas) {
  std::set<std::string> expected;
  for (const auto& entry :
       std::filesystem::directory_iterator(LILY_SOURCE_DIR "/src/backend/metal/kernels")) {
    if (entry.path().extension() == ".metal") expected.insert(entry.path().filename());
  }
  std::set<std::string> found;
  for (const EmbeddedFile& file : embedded_metal_kernels()) found.emplace(file.name);
  EXPECT_EQ(found, expected);
  EXPECT_FALSE(found.empty());
}

TEST(EmbeddedKernels, HaveTheirHeadersInThem) {
  for (const EmbeddedFile& file : embedded_metal_kernels()) {
    const std::string text = text_of(file);
    EXPECT_THAT(text, Not(HasSubstr("#include \""))) << file.name;
    EXPECT_THAT(text, HasSubstr("#include <metal_stdlib>")) << file.name;
    EXPECT_THAT(text, HasSubstr("[[kernel]]")) << file.name;
    EXPECT_THAT(text, Not(HasSubstr(LILY_SOURCE_DIR))) << file.name;
  }
}

}  // namespace
}  // namespace lily
