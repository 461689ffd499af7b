#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/test_checkpoint.h"

namespace lily {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::safetensors_bytes;

Result<std::vector<TensorView>> parse(const std::string& file) {
  return parse_safetensors("x.safetensors", std::as_bytes(std::span(file)));
}

std::string with_length(std::uint64_t length, std::string_view rest) {
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)).append(rest);
}

// A header with one tensor `t` of 8 bytes of data.
std::string one(std::string_view entry) {
  return safetensors_bytes(fmt::format("{{\"t\":{}}}", entry), "abcdefgh");
}

constexpr auto kGood = R"({"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]})";

TEST(Safetensors, ReadsTensorsInFileOrder) {
  const std::string file = safetensors_bytes(
      R"({"__metadata__":{"format":"mlx"},"b":{"dtype":"U8","shape":[3],"data_offsets":[5,8]},)"
      R"("a":{"dtype":"U32","shape":[1],"data_offsets":[0,4]},"c":{"dtype":"BOOL","shape":[],"data_offsets":[4,5]}})",
      "wxyz0123");
  const auto views = parse(file);
  ASSERT_TRUE(views.ok()) << views.error().message;
  ASSERT_EQ(views->size(), 3U);
  EXPECT_EQ((*views)[0].name, "a");
  EXPECT_EQ((*views)[0].describe(), "U32 [1]");
  EXPECT_EQ((*views)[1].name, "c");
  EXPECT_EQ((*views)[1].elements(), 1);  // a scalar
  EXPECT_EQ((*views)[2].name, "b");
  EXPECT_THAT((*views)[2].shape, ElementsAre(3));
  EXPECT_EQ(static_cast<char>((*views)[2].data[0]), '1');
}

TEST(Safetensors, EveryDTypeOfTheFormat) {
  const std::pair<const char*, std::size_t> types[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"U16", 2}, {"I16", 2}, {"F16", 2}, {"BF16", 2},
      {"U32", 4},  {"I32", 4}, {"F32", 4}, {"U64", 8}, {"I64", 8}, {"F64", 8}};
  for (const auto& [name, size] : types) {
    const auto views =
        parse(one(fmt::format(R"({{"dtype":"{}","shape":[{}],"data_offsets":[0,8]}})", name, 8 / size)));
    ASSERT_TRUE(views.ok()) << views.error().message;
    EXPECT_EQ(dtype_name(views->front().dtype), name);
    EXPECT_EQ(dtype_size(views->front().dtype), size);
  }
}

// B132
TEST(Safetensors, AlignmentIsNobodysBusiness) {
  for (std::size_t spaces = 0; spaces < 9; ++spaces) {
    const std::string header = fmt::format("{{\"t\":{}}}{}", kGood, std::string(spaces, ' '));
    const std::string file = safetensors_bytes(header, "abcdefgh");
    const auto views = parse(file);
    ASSERT_TRUE(views.ok()) << views.error().message;
    EXPECT_EQ(reinterpret_cast<const char*>(views->front().data.data()), file.data() + 8 + header.size());
  }
}

// B132
TEST(Safetensors, EmptyTensorsAndEmptyFilesLoad) {
  const auto empty = parse(safetensors_bytes(
      R"({"e":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]},"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
      "abcd"));
  ASSERT_TRUE(empty.ok()) << empty.error().message;
  EXPECT_EQ(empty->back().elements(), 0);
  EXPECT_TRUE(empty->back().data.empty());
  const auto none = parse(safetensors_bytes("{}", ""));
  ASSERT_TRUE(none.ok()) << none.error().message;
  EXPECT_TRUE(none->empty());
}

struct Lie {
  const char* what;
  std::string file;
  const char* message;
};

class LyingFile : public ::testing::TestWithParam<Lie> {};

TEST_P(LyingFile, IsRefusedByName) {
  const auto views = parse(GetParam().file);
  ASSERT_FALSE(views.ok());
  EXPECT_EQ(views.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(views.error().message, AllOf(HasSubstr("x.safetensors: "), HasSubstr(GetParam().message)));
}

std::string name_of(const ::testing::TestParamInfo<Lie>& info) {
  return info.param.what;
}

// B130: the length prefix
INSTANTIATE_TEST_SUITE_P(
    Length, LyingFile,
    ::testing::ValuesIn(std::vector<Lie>{
        Lie{"zero", with_length(0, "{}"), "expected a JSON object"},
        Lie{"one", with_length(1, "{}"), "not valid JSON"},
        Lie{"file_size", with_length(10, "{}"), "header length 10, but only 2 bytes follow"},
        Lie{"two_to_63", with_length(std::uint64_t{1} << 63U, "{}"), "header length 9223372036854775808"},
        Lie{"all_ones", with_length(~std::uint64_t{0}, "{}"), "header length 18446744073709551615"},
        Lie{"minus_eight", with_length(~std::uint64_t{0} - 7, "{}"), "header length"},
        Lie{"too_long", with_length(std::uint64_t{101} << 20U, "{}"), "expected at most 100000000"}}),
    name_of);

// B130: the header's text
INSTANTIATE_TEST_SUITE_P(
    Text, LyingFile,
    ::testing::ValuesIn(std::vector<Lie>{
        Lie{"array", safetensors_bytes("[]", ""), "expected a JSON object"},
        Lie{"leading_space", safetensors_bytes(" {}", ""), "expected a JSON object"},
        Lie{"not_json", safetensors_bytes("{x}", ""), "not valid JSON at byte 2"},
        Lie{"nul_inside", safetensors_bytes(std::string_view("{}\0", 3), ""), "not valid JSON"},
        Lie{"two_values", safetensors_bytes("{}{}", ""), "not valid JSON"},
        Lie{"not_utf8", safetensors_bytes("{\"\xff\xfe\":1}", ""), "not valid JSON"},
        Lie{"huge_number", one(R"({"dtype":"U8","shape":[8],"data_offsets":[0,1e999]})"), "not valid JSON"},
        Lie{"duplicate_tensor", safetensors_bytes(fmt::format("{{\"t\":{0},\"t\":{0}}}", kGood), "abcdefgh"),
            "\"t\" occurs twice"},
        Lie{"duplicate_field", one(R"({"dtype":"BF16","shape":[2,2],"shape":[4],"data_offsets":[0,8]})"),
            "\"shape\" occurs twice"},
        Lie{"deep", safetensors_bytes(std::string(100000, '[').insert(0, "{\"a\":"), ""), "nested deeper"},
        Lie{"deep_shape", one(R"({"dtype":"U8","shape":[[8]],"data_offsets":[0,8]})"), "nested deeper"},
        Lie{"metadata_number", safetensors_bytes(R"({"__metadata__":{"a":1}})", ""), "__metadata__"},
        Lie{"metadata_list", safetensors_bytes(R"({"__metadata__":["a"]})", ""), "__metadata__"}}),
    name_of);

// B130: an entry
INSTANTIATE_TEST_SUITE_P(
    Entry, LyingFile,
    ::testing::ValuesIn(std::vector<Lie>{
        Lie{"string", one("\"x\""), "t: expected an object"},
        Lie{"null", one("null"), "t: expected an object"},
        Lie{"no_dtype", one(R"({"shape":[8],"data_offsets":[0,8]})"), "t: dtype"},
        Lie{"no_shape", one(R"({"dtype":"U8","data_offsets":[0,8]})"), "t: shape"},
        Lie{"no_offsets", one(R"({"dtype":"U8","shape":[8]})"), "t: data_offsets"},
        Lie{"extra_field", one(R"({"dtype":"U8","shape":[8],"data_offsets":[0,8],"x":1})"), "alone"},
        Lie{"unknown_dtype", one(R"({"dtype":"F4","shape":[8],"data_offsets":[0,8]})"),
            "unknown type \"F4\""},
        Lie{"lower_case_dtype", one(R"({"dtype":"bf16","shape":[4],"data_offsets":[0,8]})"),
            "unknown type \"bf16\""},
        Lie{"numeric_dtype", one(R"({"dtype":3,"shape":[4],"data_offsets":[0,8]})"), "t: dtype"},
        Lie{"negative_shape", one(R"({"dtype":"U8","shape":[-8],"data_offsets":[0,8]})"), "found -8"},
        Lie{"float_shape", one(R"({"dtype":"U8","shape":[8.0],"data_offsets":[0,8]})"), "found 8.0"},
        Lie{"string_shape", one(R"({"dtype":"U8","shape":"8","data_offsets":[0,8]})"), "t: shape"},
        Lie{"huge_dimension", one(R"({"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,8]})"),
            "found 18446744073709551615"},
        Lie{"dimension_past_64_bits",
            one(R"({"dtype":"U8","shape":[184467440737095516160],"data_offsets":[0,8]})"), "t: shape"},
        Lie{"shape_too_small", one(R"({"dtype":"U8","shape":[7],"data_offsets":[0,8]})"),
            "U8 [7] is 7 bytes, data_offsets span 8"},
        Lie{"product_overflows_to_8",
            one(R"({"dtype":"U8","shape":[4294967296,4294967296,8],"data_offsets":[0,8]})"),
            "more than 2^64 bytes"},
        Lie{"size_overflows_to_0",
            one(R"({"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]})"),
            "more than 2^64 bytes"}}),
    name_of);

// B130: offsets
INSTANTIATE_TEST_SUITE_P(
    Offsets, LyingFile,
    ::testing::ValuesIn(std::vector<Lie>{
        Lie{"one_number", one(R"({"dtype":"U8","shape":[8],"data_offsets":[0]})"), "expected two"},
        Lie{"three_numbers", one(R"({"dtype":"U8","shape":[8],"data_offsets":[0,8,8]})"), "expected two"},
        Lie{"backwards", one(R"({"dtype":"U8","shape":[8],"data_offsets":[8,0]})"), "begin 8 is after end 0"},
        Lie{"negative", one(R"({"dtype":"U8","shape":[8],"data_offsets":[-8,0]})"), "expected two unsigned"},
        Lie{"float", one(R"({"dtype":"U8","shape":[8],"data_offsets":[0.0,8.0]})"), "expected two unsigned"},
        Lie{"past_the_end", one(R"({"dtype":"U8","shape":[9],"data_offsets":[0,9]})"), "cut short"},
        Lie{"far_past_the_end",
            one(R"({"dtype":"U8","shape":[9223372036854775807],"data_offsets":[0,9223372036854775807]})"),
            "cut short"},
        Lie{"gap_at_the_start", one(R"({"dtype":"U8","shape":[7],"data_offsets":[1,8]})"),
            "t: data begins at 1"},
        Lie{"gap",
            safetensors_bytes(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                              R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                              "abcdefgh"),
            "b: data begins at 4, expected 3: there is a gap"},
        Lie{"overlap",
            safetensors_bytes(R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},)"
                              R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                              "abcdefgh"),
            "b: data begins at 4, expected 5: it overlaps another tensor"},
        Lie{"same_place",
            safetensors_bytes(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                              R"("b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
                              "abcdefgh"),
            "overlaps"},
        Lie{"empty_inside_another",
            safetensors_bytes(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                              R"("b":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}})",
                              "abcdefgh"),
            "overlaps"}}),
    name_of);

// B134
TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string file = one(kGood);
  ASSERT_TRUE(parse(file).ok());
  for (std::size_t size = 0; size < file.size(); ++size) {
    EXPECT_FALSE(parse(file.substr(0, size)).ok()) << size << " of " << file.size() << " bytes";
  }
  EXPECT_THAT(parse(file.substr(0, file.size() - 1)).error().message,
              HasSubstr("the header describes 8 bytes of data, the file holds 7"));
}

// B134
TEST(Safetensors, TrailingBytesAreRefused) {
  EXPECT_THAT(parse(one(kGood) + "x").error().message, HasSubstr("trailing"));
  EXPECT_THAT(parse(one(kGood) + std::string(4096, '\0')).error().message,
              HasSubstr("the header describes 8 bytes of data, the file holds 4104"));
}

// What a writer of ours makes, its own reader takes.
TEST(Safetensors, WrittenHeaderReadsBack) {
  const std::vector<TensorPlan> plans = {
      {"b", DType::kU8, {3}}, {"a", DType::kF32, {2, 1}}, {"s", DType::kBF16, {}}};
  const std::string file = safetensors_header(plans) + std::string(13, 'x');
  const auto views = parse(file);
  ASSERT_TRUE(views.ok()) << views.error().message;
  ASSERT_EQ(views->size(), 3U);
  EXPECT_EQ((*views)[0].name, "b");
  EXPECT_EQ((*views)[1].describe(), "F32 [2, 1]");
}

}  // namespace
}  // namespace lily
