#include "text/tool_call_parser.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "tests/text/small_tokenizer.h"
#include "text/chat_template.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

const ToolSet& tools() {
  static const ToolSet set = read_tool_set(Json::parse(R"([
    {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {
      "path": {"type": "string"}, "mode": {"type": "string"}}}}},
    {"type": "function", "function": {"name": "set", "parameters": {"type": "object", "properties": {
      "tags": {"type": "array"}, "rules": {"type": "array", "items": {"type": "object"}}, "dry": {"type": "boolean"},
      "n": {"type": "integer"}, "y": {"type": "number"}, "o": {"type": "object"}, "s": {"type": "string"},
      "u": {"type": ["string", "null"]}, "odd key": {"type": "string"}, "free": {},
      "r": {"$ref": "#/$defs/count"}, "a": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
      "e": {"enum": ["x", "y"]}}, "$defs": {"count": {"type": "integer"}}}}},
    {"type": "function", "function": {"name": "ping"}}])"));
  return set;
}

struct Call {
  std::string name;
  std::string arguments;
  bool operator==(const Call&) const = default;
};

struct Parsed {
  std::string text;
  std::vector<Call> calls;
  bool operator==(const Parsed&) const = default;
};

void PrintTo(const Parsed& parsed, std::ostream* out) {
  *out << "text " << ::testing::PrintToString(parsed.text);
  for (const Call& call : parsed.calls) *out << ", " << call.name << " " << call.arguments;
}

Parsed parse(const std::vector<std::string_view>& pieces, bool cut = false) {
  ToolCallParser parser(tools());
  std::vector<ToolEvent> events;
  for (const auto piece : pieces) parser.push(piece, events);
  parser.finish(cut, events);
  Parsed parsed;
  bool open = false;
  for (const ToolEvent& event : events) {
    switch (event.kind) {
      case ToolEvent::Kind::kText:
        EXPECT_FALSE(open);
        EXPECT_FALSE(event.text.empty());
        parsed.text += event.text;
        break;
      case ToolEvent::Kind::kCall:
        EXPECT_FALSE(open);
        open = true;
        parsed.calls.push_back({event.text, ""});
        break;
      case ToolEvent::Kind::kArguments:
        EXPECT_TRUE(open);
        parsed.calls.back().arguments += event.text;
        break;
      case ToolEvent::Kind::kCallEnd:
        EXPECT_TRUE(open);
        open = false;
        break;
    }
  }
  EXPECT_FALSE(open);
  for (const Call& call : parsed.calls) EXPECT_TRUE(Json::accept(call.arguments)) << call.arguments;
  return parsed;
}

// Whether a character begins at `at`: pieces hold whole ones.
bool cuttable(std::string_view text, std::size_t at) {
  return at >= text.size() || (static_cast<unsigned char>(text[at]) & 0xC0U) != 0x80U;
}

// Cuts at every one and two places, byte by byte and at random must give what the whole text gives.
Parsed parse_every_way(std::string_view text) {
  const Parsed whole = parse({text});
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (!cuttable(text, i)) continue;
    EXPECT_EQ(parse({text.substr(0, i), text.substr(i)}), whole) << "cut at " << i;
  }
  if (text.size() <= 130) {
    for (std::size_t i = 0; i <= text.size(); ++i) {
      for (std::size_t j = i; j <= text.size(); ++j) {
        if (!cuttable(text, i) || !cuttable(text, j)) continue;
        EXPECT_EQ(parse({text.substr(0, i), text.substr(i, j - i), text.substr(j)}), whole) << i << ", " << j;
      }
    }
  }
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): the same cuts every time
  for (int round = 0; round < 50; ++round) {
    std::vector<std::string_view> pieces;
    for (std::size_t at = 0; at < text.size();) {
      std::size_t length = round == 0 ? 1 : 1 + random() % 9;
      while (!cuttable(text, at + length)) ++length;
      pieces.push_back(text.substr(at, length));
      at += length;
    }
    EXPECT_EQ(parse(pieces), whole) << "round " << round;
  }
  return whole;
}

Parsed call(const std::string& name, const std::string& arguments) {
  return {"", {{name, arguments}}};
}

std::string markup(const std::string& name, const std::vector<std::pair<std::string, std::string>>& values) {
  std::string text = "<tool_call>\n<function=" + name + ">\n";
  for (const auto& [key, value] : values) text += "<parameter=" + key + ">\n" + value + "\n</parameter>\n";
  return text + "</function>\n</tool_call>";
}

TEST(ToolCallParser, ReadsTheTemplatesFormat) {
  EXPECT_EQ(parse_every_way(markup("read", {{"path", "a.txt"}})), call("read", R"({"path":"a.txt"})"));
  EXPECT_EQ(parse_every_way(markup("read", {{"path", "a"}, {"mode", "b"}})),
            call("read", R"({"path":"a","mode":"b"})"));
  EXPECT_EQ(parse_every_way(markup("ping", {})), call("ping", "{}"));
}

TEST(ToolCallParser, TextAroundCallsIsText) {
  EXPECT_EQ(parse_every_way("I will look.\n\n" + markup("ping", {})),
            (Parsed{"I will look.", {{"ping", "{}"}}}));
  EXPECT_EQ(parse_every_way(markup("ping", {}) + "\n\nDone."), (Parsed{"Done.", {{"ping", "{}"}}}));
  EXPECT_EQ(parse_every_way("A\n" + markup("ping", {}) + "\n\nB"), (Parsed{"A\n\nB", {{"ping", "{}"}}}));
  EXPECT_EQ(parse_every_way("if a < b: \xF0\x9F\x98\x80 " + markup("ping", {})),
            (Parsed{"if a < b: \xF0\x9F\x98\x80", {{"ping", "{}"}}}));
  EXPECT_EQ(parse_every_way("no call \n\n"), (Parsed{"no call \n\n", {}}));
  const std::string unopened =
      "I will look.\n\n<function=read>\n<parameter=path>\na\n</parameter>\n</function>";
  const Parsed looked{"I will look.", {{"read", R"({"path":"a"})"}}};
  EXPECT_EQ(parse_every_way(unopened), looked);
  EXPECT_EQ(parse_every_way(unopened + "\n</tool_call>"), looked);
}

TEST(ToolCallParser, SeveralCalls) {
  const Parsed three{"", {{"ping", "{}"}, {"read", R"({"path":"a"})"}, {"ping", "{}"}}};
  const std::string read = markup("read", {{"path", "a"}});
  EXPECT_EQ(parse_every_way(markup("ping", {}) + "\n" + read + "\n" + markup("ping", {})), three);
  EXPECT_EQ(parse_every_way(markup("ping", {}) + read + markup("ping", {}) + "\n"), three);
}

TEST(ToolCallParser, StringsKeepTheirBlanks) {
  for (const std::string value :
       {"      - item: two\n        keep: yes\n", "\n", "   ", "", "a\r\n", "a\xC2\xA0", "}", "{\"", "\"",
        "\\\\", "<", "a < b", "</", "<tool_call>", "</function>", "line\n</function>\nline", "</parametr>",
        "<parameter=", "\n\n\n"}) {
    Json arguments = {{"path", value}};
    EXPECT_EQ(parse_every_way(markup("read", {{"path", value}})), call("read", arguments.dump())) << value;
  }
}

TEST(ToolCallParser, OtherTypesFollowTheSchema) {
  EXPECT_EQ(
      parse_every_way(markup(
          "set", {{"tags", R"(["north"])"}, {"rules", R"([{"kind":"k1"}])"}, {"dry", "True"}, {"n", "3"}})),
      call("set", R"({"tags":["north"],"rules":[{"kind":"k1"}],"dry":true,"n":3})"));
  const std::vector<std::array<std::string, 3>> cases = {
      {"n", "next Tuesday", R"("next Tuesday")"},
      {"y", "about 3", R"("about 3")"},
      {"dry", "maybe", R"("maybe")"},
      {"n", "", R"("")"},
      {"n", "3.0", "3"},
      {"n", "3.5", R"("3.5")"},
      {"n", " 7 ", "7"},
      {"n", "123456789012345678901234567890", "123456789012345678901234567890"},
      {"n", "03", R"("03")"},
      {"y", "2", "2"},
      {"y", "-1.5e3", "-1.5e3"},
      {"y", "NaN", R"("NaN")"},
      {"s", "null", R"("null")"},
      {"s", "NULL", R"("NULL")"},
      {"s", "5", R"("5")"},
      {"u", "null", "null"},
      {"u", "text", R"("text")"},
      {"n", "null", R"("null")"},
      {"a", "null", "null"},
      {"a", "4", "4"},
      {"r", "9", "9"},
      {"e", "x", R"("x")"},
      {"o", R"({"k": [1, 2]})", R"({"k": [1, 2]})"},
      {"o", R"(["k"])", R"("[\"k\"]")"},
      {"tags", "north", R"("north")"},
      {"free", "5", R"("5")"},
      {"unknown", "5", R"("5")"},
      {"odd key", "v", R"("v")"},
  };
  for (const auto& [key, value, json] : cases) {
    EXPECT_EQ(parse_every_way(markup("set", {{key, value}})), call("set", "{\"" + key + "\":" + json + "}"));
  }
}

TEST(ToolCallParser, ForgivesTagsMissingOrTwice) {
  const Parsed expected = call("read", R"({"path":"a"})");
  for (const std::string text :
       {"<function=read>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>",
        "<function=read>\n<parameter=path>\na\n</parameter>\n</function>",
        "<tool_call>\n<function=read>\n<parameter=path>\na\n</parameter>\n</parameter>\n</function>\n</"
        "tool_call>",
        "<tool_call>\n<function=read>\n<parameter=path>\na\n</parameter>\n</function>\n</function>\n</"
        "tool_call>",
        "<tool_call>\n<function=read>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>\n</"
        "tool_call>",
        "<tool_call>\n<function=read>\n<parameter=path>\na\n</parameter>\n</tool_call>",
        "<tool_call>\n<function=read>\n<parameter=path>\na\n</function>\n</tool_call>",
        "<tool_call>\n<function=read>\n<parameter=path>\na\n</function>",
        "<tool_call>\n<function=read>\n<parameter=path>\na\n</tool_call>",
        "<tool_call>\n<function=read>\n<parameter=path>\na\n</parameter>",
        "<tool_call><function=read><parameter=path>a</parameter></function></tool_call>",
        "<tool_call>\n<tool_call>\n<function=read>\n<parameter=path>\na\n</parameter>\n</function>\n</"
        "tool_call>"}) {
    EXPECT_EQ(parse_every_way(text), expected) << text;
  }
  EXPECT_EQ(
      parse_every_way("<tool_call>\n<function=read>\n<parameter=path>\na\n<parameter=mode>\nb\n</parameter>"),
      call("read", R"({"path":"a","mode":"b"})"));
}

TEST(ToolCallParser, MalformedParametersAreDropped) {
  const std::string head = "<tool_call>\n<function=read>\n<parameter=path>\na\n</parameter>\n";
  const std::string tail = "\n</parameter>\n</function>\n</tool_call>";
  for (const std::string bad :
       {"<parameter=\nls -l", "<parameter=rows: [4,5]", "<parameter=memo=", "<parameter>\nx",
        "<parameter=>\nx", "<parameter=a b>\nx", "<parameter=path>\nagain"}) {
    EXPECT_EQ(parse_every_way(head + bad + tail), call("read", R"({"path":"a"})")) << bad;
  }
}

TEST(ToolCallParser, WhatIsNoCallStaysText) {
  for (const std::string text :
       {"<tool_call>", "<tool_call>\nhm", "use <tool_call> for this", "<function=unknown>\n</function>",
        "<tool", "ends in <tool", "<function=read", "</tool_call>", "a </function> b",
        "<tool_call>\n<function=>\n</function>", "<tool_call>\n{\"name\": \"read\"}\n</tool_call>"}) {
    EXPECT_EQ(parse_every_way(text), (Parsed{text, {}})) << text;
  }
}

TEST(ToolCallParser, AnUnknownFunctionInWholeMarkupIsACall) {
  EXPECT_EQ(parse_every_way(markup("other", {{"x", "1"}})), call("other", R"({"x":"1"})"));
}

// What the template writes of a call in the history is read as the same call.
TEST(ToolCallParser, RenderedAndReadAgainArgumentsAreTheSame) {
  const ChatTemplate chat = ChatTemplate::recognise(test::tiny_file("chat_template.jinja")).value();
  for (const std::string arguments :
       {R"({"s":"      - item: two\n        keep: yes\n","n":3,"dry":true})", R"({"s":"\n"})", R"({"s":""})",
        R"({"s":" \r\n","u":null,"tags":["a",[1]],"o":{"k":"v"}})", R"({"s":"}{\"\\","y":-1.5})", "{}"}) {
    const Json call = {{"type", "function"},
                       {"function", {{"name", "set"}, {"arguments", Json::parse(arguments)}}}};
    const Json messages = {{{"role", "user"}, {"content", "x"}},
                           {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call})}}};
    const std::string text = chat.render(messages, nullptr, {.add_generation_prompt = false}).value();
    const std::size_t begin = text.find("<tool_call>");
    const Parsed parsed =
        parse_every_way(std::string_view(text).substr(begin, text.rfind("<|im_end|>") - begin));
    ASSERT_EQ(parsed.calls.size(), 1U) << text;
    EXPECT_EQ(Json::parse(parsed.calls[0].arguments), Json::parse(arguments)) << text;
  }
}

// A token limit may cut anywhere: the call is there from its name on, and its arguments are JSON.
TEST(ToolCallParser, CutOffAnywhere) {
  const std::string text = "Hm.\n\n" + markup("read", {{"path", "a\nb"}, {"mode", "c"}});
  const std::size_t named = text.find(">\n<parameter") + 1;
  for (std::size_t length = 0; length <= text.size(); ++length) {
    const Parsed parsed = parse_every_way(std::string_view(text).substr(0, length));
    EXPECT_EQ(parsed.calls.size(), length >= named ? 1U : 0U) << length;
    if (length >= named) {
      EXPECT_EQ(parsed.text, "Hm.") << length;
      EXPECT_EQ(parsed.calls[0].arguments.find("parameter"), std::string::npos) << parsed.calls[0].arguments;
    }
  }
}

TEST(ToolCallParser, CutOffBeforeItsNameACallIsNothing) {
  for (const std::string_view text :
       {"Hm.\n<tool_call>", "Hm. <tool_call>\n<func", "Hm. <tool_call>\n<function=re"}) {
    EXPECT_EQ(parse({text}, true), (Parsed{"Hm.", {}})) << text;
    EXPECT_EQ(parse({text}, false).text, text);
  }
  EXPECT_EQ(parse({"Hm. <tool_call> no"}, true).text, "Hm. <tool_call> no");
}

}  // namespace
}  // namespace lily
