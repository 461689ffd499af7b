#include "text/python_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lily {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Parsed and printed again, as json.dumps(json.loads(text), ensure_ascii=False) does.
std::string reprint(std::string_view text) {
  const auto value = parse_template_json(text);
  if (!value.ok()) return "error: " + value.error().message;
  return to_template_json(*value).value();
}

TEST(PythonJson, PrintsAsPython) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"[1,\"é\",{\"k\":\"v\"}]", "[1, \"é\", {\"k\": \"v\"}]"},
      {"[]", "[]"},
      {"{}", "{}"},
      {"{\"b\":1,\"a\":[],\"c\":{}}", "{\"b\": 1, \"a\": [], \"c\": {}}"},
      {"[true,false,null]", "[true, false, null]"},
      {"[1.0,1e-5,0.0001,1e20,1e15,1e16,1e22,-0.0,-0,0.1]",
       "[1.0, 1e-05, 0.0001, 1e+20, 1000000000000000.0, 1e+16, 1e+22, -0.0, 0, 0.1]"},
      {"[5e-324,1.7976931348623157e308,123456789012345680,3E0]",
       "[5e-324, 1.7976931348623157e+308, 123456789012345680, 3.0]"},
      {"[18446744073709551615,-9223372036854775808,18446744073709551616,-99999999999999999999999999999999]",
       "[18446744073709551615, -9223372036854775808, 18446744073709551616, "
       "-99999999999999999999999999999999]"},
      {"\"\\u0000\\u0007\\b\\f\\n\\r\\t\\u001f\\u007f\\\"\\\\/<>&'\"",
       "\"\\u0000\\u0007\\b\\f\\n\\r\\t\\u001f\x7f\\\"\\\\/<>&'\""},
      {"\"\\u2028\\ud83d\\ude00\"", "\"\u2028😀\""},
      {"{\"a\":1,\"b\":2,\"a\":3}", "{\"a\": 3, \"b\": 2}"},
  };
  for (const auto& [text, printed] : cases) EXPECT_EQ(reprint(text), printed);
}

TEST(PythonJson, RefusesWhatIsNoJson) {
  for (const char* text :
       {"", "{", "[1,]", "{\"a\"}", "nul", "\"\\ud800\"", "\"\xff\"", "1 2", "NaN", "01"}) {
    EXPECT_THAT(reprint(text), HasSubstr("error: not valid JSON")) << text;
  }
  EXPECT_THAT(reprint("1e999"), HasSubstr("out of range"));
}

TEST(PythonJson, LimitsNesting) {
  const auto nested = [](int depth) {
    std::string text;
    for (int i = 0; i < depth; ++i) text += "[";
    for (int i = 0; i < depth; ++i) text += "]";
    return text;
  };
  EXPECT_EQ(reprint(nested(kMaxTemplateJsonDepth)), nested(kMaxTemplateJsonDepth));
  EXPECT_THAT(reprint(nested(kMaxTemplateJsonDepth + 1)), HasSubstr("deeper than 128"));
  EXPECT_THAT(reprint(std::string(1000000, '[')), HasSubstr("deeper than 128"));

  nlohmann::ordered_json value = 1;  // made without the parser
  for (int i = 0; i < 5000; ++i) value = nlohmann::ordered_json::array({std::move(value)});
  EXPECT_FALSE(to_template_json(value).ok());
}

// nlohmann's own ordered object would compare each key with all before it.
TEST(PythonJson, ManyKeys) {
  std::string text = "{";
  for (int i = 0; i < 200000; ++i) text += "\"key" + std::to_string(i) + "\": 1, ";
  text += "\"key7\": 2}";
  const auto value = parse_template_json(text);
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(value->size(), 200000U);
  EXPECT_THAT(to_template_json(*value).value(), StartsWith("{\"key0\": 1, \"key1\": 1, "));
  EXPECT_THAT(to_template_json(*value).value(), HasSubstr("\"key6\": 1, \"key7\": 2, \"key8\": 1, "));
}

TEST(PythonJson, PythonStr) {
  EXPECT_EQ(to_python_str(true), "True");
  EXPECT_EQ(to_python_str(false), "False");
  EXPECT_EQ(to_python_str(nullptr), "None");
  EXPECT_EQ(to_python_str(1.0), "1.0");
  EXPECT_EQ(to_python_str(-3), "-3");
  EXPECT_EQ(to_python_str(" a\"\n"), " a\"\n");
}

}  // namespace
}  // namespace lily
