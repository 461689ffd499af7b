#include "base/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace lily {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string npy(std::string_view dictionary, std::string_view data) {
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(dictionary.size() & 0xff);
  file += static_cast<char>(dictionary.size() >> 8);
  return file + std::string(dictionary) + std::string(data);
}

Result<std::vector<TokenId>> parse(std::string_view file) {
  return parse_npy_ids("x.npy", std::as_bytes(std::span(file)));
}

std::filesystem::path temporary(const std::string& name) {
  return std::filesystem::path(testing::TempDir()) / name;
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Npy, ReadsWhatItWrote) {
  const auto path = temporary("ids.npy");
  const std::vector<TokenId> ids = {0, 1, 248319, 7};
  ASSERT_TRUE(write_npy_ids(path, ids).ok());
  EXPECT_EQ(contents(path).size() % 64, 16U);  // NumPy aligns the data at 64
  const auto read = read_npy_ids(path);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, ids);
}

TEST(Npy, ReadsNumPysSpelling) {
  const std::string_view data("\x05\0\0\0\x06\0\0\0", 8);
  const auto ids = parse(npy("{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }   \n", data));
  ASSERT_TRUE(ids.ok()) << ids.error().message;
  EXPECT_THAT(*ids, ElementsAre(5, 6));
}

TEST(Npy, ReadsInt64ThatFits) {
  const std::string dictionary = "{'descr': '<i8', 'fortran_order': False, 'shape': (1,), }\n";
  const auto ids = parse(npy(dictionary, std::string_view("\x05\0\0\0\0\0\0\0", 8)));
  ASSERT_TRUE(ids.ok()) << ids.error().message;
  EXPECT_THAT(*ids, ElementsAre(5));
  EXPECT_FALSE(parse(npy(dictionary, std::string_view("\0\0\0\0\x01\0\0\0", 8))).ok());
}

TEST(Npy, SaysWhatItExpectedAndFound) {
  const auto floats = parse(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n", "abcd"));
  ASSERT_FALSE(floats.ok());
  EXPECT_EQ(floats.error().message, "x.npy: expected int32 of one dimension, found <f4 of shape (1,)");
  const auto matrix = parse(npy("{'descr': '<i4', 'fortran_order': False, 'shape': (1, 1), }\n", "abcd"));
  ASSERT_FALSE(matrix.ok());
  EXPECT_THAT(matrix.error().message, HasSubstr("(1, 1)"));
  const auto negative =
      parse(npy("{'descr': '<i4', 'fortran_order': False, 'shape': (1,), }\n", "\xff\xff\xff\xff"));
  ASSERT_FALSE(negative.ok());
  EXPECT_THAT(negative.error().message, HasSubstr("item 0: expected a token id, found -1"));
}

TEST(Npy, RefusesFilesThatLie) {
  const std::string header = "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }\n";
  const std::string good = npy(header, std::string(8, '\0'));
  ASSERT_TRUE(parse(good).ok());
  for (std::size_t cut = 0; cut < good.size(); ++cut) {
    EXPECT_FALSE(parse(std::string_view(good).substr(0, cut)).ok()) << "cut at " << cut;
  }
  EXPECT_FALSE(parse(good + "x").ok());
  EXPECT_FALSE(
      parse(npy("{'descr': '<i4', 'fortran_order': False, 'shape': (4611686018427387905,), }\n", "abcd"))
          .ok());
}

TEST(Npy, WritesAMatrixThatAppearsWhole) {
  const auto path = temporary("matrix.npy");
  std::filesystem::remove(path);
  auto writer = NpyMatrixWriter::create(path, 2, 2);
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  const std::vector<float> row = {1.0F, 2.0F};
  ASSERT_TRUE(writer->append(row).ok());
  ASSERT_TRUE(writer->append(row).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(writer->commit().ok());
  const std::string file = contents(path);
  EXPECT_THAT(file, HasSubstr("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }"));
  EXPECT_EQ(file.size() % 64, 16U);
}

TEST(Npy, MissingFileIsNamed) {
  const auto ids = read_npy_ids("/nonexistent/ids.npy");
  ASSERT_FALSE(ids.ok());
  EXPECT_THAT(ids.error().message, HasSubstr("/nonexistent/ids.npy"));
}

}  // namespace
}  // namespace lily
