#include "server/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "text/python_json.h"

namespace lily {
namespace {

std::string nested(int depth) {
  return std::string(depth, '[') + std::string(depth, ']');
}

TEST(RequestJson, LimitsDepthWhereverItIs) {
  EXPECT_TRUE(parse_template_json(nested(60)).ok());
  EXPECT_TRUE(parse_template_json(nested(kMaxTemplateJsonDepth)).ok());
  EXPECT_FALSE(parse_template_json(nested(kMaxTemplateJsonDepth + 1)).ok());
  EXPECT_FALSE(parse_template_json(nested(1'000'000)).ok());
  EXPECT_FALSE(parse_template_json("{\"zzz\":" + nested(10'000) + "}").ok());
  EXPECT_FALSE(parse_template_json(std::string(10'000, '[')).ok()) << "unclosed";
  EXPECT_TRUE(
      parse_template_json("\"" + std::string(10'000, '[') + "\\\"" + std::string(10'000, '{') + "\"").ok())
      << "brackets in strings do not nest";
}

TEST(RequestJson, RefusesWhatIsNotUtf8) {
  for (const auto* bad : {"\"\xFF\xFE\"", "\"\xC0\x80\"", "\"\xED\xA0\x80\"", "\"\\ud83d\"", "\"\\ude00\"",
                          "\"\\ud83dx\"", "\"\xE2\x82\""}) {
    const auto parsed = parse_template_json(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
    EXPECT_TRUE(nlohmann::json::accept(dump_json(parsed.error().message)));
  }
  EXPECT_EQ(*parse_template_json(R"("a\ud83d\ude00b")"),
            "a\xF0\x9F\x98\x80"
            "b");
  EXPECT_EQ(*parse_template_json(R"("\u0000")"), std::string(1, '\0'));
}

TEST(RequestJson, RefusesWhatIsNotJson) {
  for (const auto* bad :
       {"", "  \n", "{", "{\"a\":1}}", "{'a':1}", "{\"a\":1,}", "nan", "1e999", "{\"a\":01}"}) {
    EXPECT_FALSE(parse_template_json(bad).ok()) << bad;
  }
}

TEST(RequestJson, ReadsManyKeysInLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += "\"" + std::to_string(i) + "\":0,";
  text.back() = '}';
  EXPECT_EQ(parse_template_json(text)->size(), 200'000U);  // quadratic, this would take minutes
}

TEST(RequestJson, KeepsTheOrderOfKeys) {
  EXPECT_EQ(dump_json(*parse_template_json(R"({"z":1,"a":{"y":2,"b":3}})")), R"({"z":1,"a":{"y":2,"b":3}})");
}

TEST(DumpJson, AlwaysWritesUtf8) {
  EXPECT_EQ(dump_json("a\xFF"), "\"a\xEF\xBF\xBD\"");
  EXPECT_EQ(dump_json("\xF0\x9F\x98"), "\"\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace lily
