#include "text/tool_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/text/small_tokenizer.h"
#include "text/grammar_automaton.h"

namespace lily {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

const Json& tools() {
  static const Json list = Json::parse(R"([
    {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {
      "path": {"type": "string"}, "n": {"type": "integer", "minimum": 1}, "mode": {"enum": ["r", "w"]},
      "tag": {"type": "string", "pattern": "^[a-z]+$"}}, "required": ["path", "tag"]}}},
    {"type": "function", "function": {"name": "odd", "parameters": {"type": "object", "properties": {
      "x": {"type": "array", "uniqueItems": true}}}}},
    {"type": "function", "function": {"name": "bare"}}])");
  return list;
}

void expect(const ToolGrammarOptions& options, const std::vector<std::string>& good,
            const std::vector<std::string>& bad) {
  static const auto vocabulary =
      std::make_shared<const TokenVocabulary>(test::parse(test::small_tokenizer_json()));
  auto grammar = tool_grammar(tools(), options);
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  GrammarAutomaton matcher(std::move(grammar).value(), vocabulary);
  const auto accepts = [&](const std::string& text) {
    return matcher.accepts(matcher.read(matcher.start(), text));
  };
  for (const std::string& text : good) EXPECT_TRUE(accepts(text)) << text;
  for (const std::string& text : bad) EXPECT_FALSE(accepts(text)) << text;
}

std::string call(const std::string& name, const std::vector<std::pair<std::string, std::string>>& values) {
  std::string text = "<tool_call>\n<function=" + name + ">\n";
  for (const auto& [key, value] : values) text += "<parameter=" + key + ">\n" + value + "\n</parameter>\n";
  return text + "</function>\n</tool_call>";
}

const std::string kRead = call("read", {{"path", "a\nb <x>"}, {"n", "3"}, {"mode", "w"}, {"tag", "abc"}});

TEST(ToolGrammar, RequiredIsCallsAlone) {
  expect({.required = true},
         {kRead, "\n\n" + kRead, kRead + "\n" + call("bare", {}),
          call("read", {{"path", "漢<😀"}, {"tag", "x"}}), call("read", {{"path", ""}, {"tag", "x"}}),
          call("odd", {{"x", "anything at all"}}), call("odd", {})},
         {"", "text", "text " + kRead, kRead + " text", call("read", {{"path", "a"}}),
          call("read", {{"path", "\xE6\xBC"}, {"tag", "x"}}),
          call("read", {{"path", "a"}, {"n", "0"}, {"tag", "x"}}),
          call("read", {{"path", "a"}, {"mode", "x"}, {"tag", "x"}}),
          call("read", {{"path", "a"}, {"tag", "X"}}), call("read", {{"tag", "x"}, {"path", "a"}}),
          call("write", {}), call("odd", {{"y", "1"}})});
  expect({.required = true, .single = true}, {kRead}, {kRead + "\n" + kRead});
  expect({.required = true, .single = true, .only = "bare"}, {call("bare", {})}, {kRead});
}

TEST(ToolGrammar, OtherwiseTextMayHoldCalls) {
  expect({.strict = {"read"}},
         {"", "text", "a < b <tool_cal", "漢<é" + kRead + "😀", "text\n\n" + kRead,
          kRead + "\n" + kRead + "\nmore text", call("odd", {{"x", "[1,1]"}})},
         {"text <tool_call>", "<tool_call>\n{", "\xE6\xBC" + kRead, call("read", {{"path", "a"}}),
          kRead + call("write", {})});
}

TEST(ToolGrammar, StrictFunctionsAreKeptOrNamed) {
  const auto grammar = tool_grammar(tools(), {.required = true, .strict = {"odd"}});
  ASSERT_FALSE(grammar.ok());
  EXPECT_THAT(grammar.error().message, HasSubstr("tools[1].function.parameters.properties.x.uniqueItems: "));
}

}  // namespace
}  // namespace lily
