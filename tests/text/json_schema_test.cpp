#include "text/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "tests/text/small_tokenizer.h"
#include "text/grammar_automaton.h"
#include "text/python_json.h"
#include "text/utf8.h"

namespace lily {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

std::shared_ptr<const TokenVocabulary> vocabulary() {
  static const auto instance = [] {
    const Tokenizer tokenizer = *Tokenizer::parse(test::tiny_tokenizer_json());
    return std::make_shared<const TokenVocabulary>(tokenizer);
  }();
  return instance;
}

GrammarAutomaton automaton(const std::string& schema) {
  auto grammar = json_schema_grammar(*parse_template_json(schema));
  if (!grammar.ok()) {
    ADD_FAILURE() << schema << ": " << grammar.error().message;
    return {*json_schema_grammar(Json::parse("{}")), vocabulary()};
  }
  return {std::move(grammar).value(), vocabulary()};
}

bool accepts(GrammarAutomaton& matcher, std::string_view text) {
  return matcher.accepts(matcher.read(matcher.start(), text));
}

void expect(const std::string& schema, const std::vector<std::string>& good,
            const std::vector<std::string>& bad) {
  GrammarAutomaton matcher = automaton(schema);
  for (const std::string& text : good)
    EXPECT_TRUE(accepts(matcher, text)) << schema << " should take " << text;
  for (const std::string& text : bad)
    EXPECT_FALSE(accepts(matcher, text)) << schema << " should not take " << text;
}

std::string refusal(const std::string& schema) {
  const auto json = parse_template_json(schema);  // as requests are, unless they are too deep for that
  const auto grammar = json_schema_grammar(json.ok() ? *json : Json::parse(schema));
  return grammar.ok() ? "" : grammar.error().message;
}

TEST(JsonSchema, AnyValueIsJson) {
  expect("{}",
         {"1", "-0.5e+3", "\"\"", "null", "true", "[]", "{}", R"({"a": [1, {"b": null}], "c": "d"})",
          "\n\n[1]", R"("\u00e9\n\ud83d\ude00")", "[ 1 ]", "{\n  \"a\": 1\n}"},
         {"", "01", "1.", ".5", "+1", "tru", "[1,]", "{,}", "{\"a\"}", "{a:1}", "'a'", R"("\x")",
          R"("\ud83d")", "\"\n\"", "[1] ", "{\"a\": 1,}", "\n\n\n1", "[1  ]"});
  expect(R"({"type":"object"})", {"{}", R"({"a":1,"b":{}})"}, {"[]", "1", "\"a\""});
}

TEST(JsonSchema, Scalars) {
  expect(R"({"type":"boolean"})", {"true", "false"}, {"True", "1", "null"});
  expect(R"({"type":"null"})", {"null"}, {"0"});
  expect(R"({"type":"integer"})", {"0", "-7", "123456789012345678"}, {"1.0", "-0", "007", "1e3", "\"1\""});
  expect(R"({"type":"number"})", {"0", "-7.25", "1e3", "0.5"}, {"1.", "-", "NaN"});
  expect(R"({"type":["string","null"]})", {"\"a\"", "null"}, {"1"});
  expect(R"({"enum":["a\"b",1,null]})", {R"("a\"b")", "1", "null"}, {"\"a\"", "2"});
  expect(R"({"const":{"a":[1]}})", {R"({"a":[1]})"}, {R"({"a": [1]})"});
}

TEST(JsonSchema, IntegersBeyond64BitsAreExact) {
  expect(R"({"const":123456789012345678901234567890})", {"123456789012345678901234567890"},
         {"123456789012345678901234567891", "1.2345678901234568e+29"});
  expect(R"({"enum":[18446744073709551616,{"id":-99999999999999999999}]})",
         {"18446744073709551616", R"({"id":-99999999999999999999})"}, {"18446744073709551615"});
}

TEST(JsonSchema, Bounds) {
  const auto integers = [](const std::string& bounds, std::int64_t first, std::int64_t last) {
    GrammarAutomaton matcher = automaton("{\"type\":\"integer\"," + bounds + "}");
    for (std::int64_t i = -1200; i <= 1200; ++i) {
      ASSERT_EQ(accepts(matcher, std::to_string(i)), first <= i && i <= last) << bounds << " " << i;
    }
  };
  integers(R"("minimum":0,"maximum":100)", 0, 100);
  integers(R"("minimum":7,"maximum":1013)", 7, 1013);
  integers(R"("minimum":-25,"maximum":3)", -25, 3);
  integers(R"("exclusiveMinimum":-1,"exclusiveMaximum":5)", 0, 4);
  integers(R"("minimum":98)", 98, 5000);
  integers(R"("maximum":-98)", -5000, -98);
  integers(R"("minimum":0.5,"maximum":2.5)", 1, 2);
  integers(R"("minimum":5,"maximum":5)", 5, 5);
  expect(R"({"type":"number","minimum":0,"maximum":1})", {"0", "1", "0.5", "1.0", "0.0"},
         {"-0.5", "1.1", "2", "-0", "1e3"});
  expect(R"({"type":"number","exclusiveMinimum":0})", {"0.1", "3", "0.001", "12.5"}, {"0", "0.0", "-1"});
  expect(R"({"type":"number","maximum":-2})", {"-2", "-2.5", "-30", "-2.0"}, {"-1.9", "0", "2"});
  // What numbers cannot reach limits nothing, and what they would have to reach cannot be kept.
  expect(R"({"type":"integer","minimum":0,"maximum":18446744073709551615})", {"0", "999999999999999999"},
         {"-1"});
  expect(R"({"type":"integer","minimum":-99999999999999999999999,"maximum":3})", {"-7", "3"}, {"4"});
  EXPECT_THAT(refusal(R"({"type":"integer","minimum":99999999999999999999999})"),
              HasSubstr("found 99999999999999999999999"));
  expect(R"({"type":"integer","minimum":1,"exclusiveMinimum":true})", {"2"}, {"1"});
  EXPECT_THAT(refusal(R"({"type":"integer","minimum":2,"maximum":1})"), HasSubstr("no number"));
  EXPECT_THAT(refusal(R"({"type":"number","minimum":0.5})"), HasSubstr("minimum"));
}

TEST(JsonSchema, Strings) {
  expect(R"({"type":"string","minLength":2,"maxLength":3})", {"\"ab\"", "\"é😀\"", R"("\n\u00e9x")"},
         {"\"a\"", "\"abcd\"", "\"é\""});
  expect(R"({"type":"string","pattern":"^[a-c]+\\d{2,3}$"})", {"\"a12\"", "\"abc123\""},
         {"\"12\"", "\"a1\"", "\"d12\"", "\"a12x\""});
  expect(R"({"type":"string","pattern":"\\S"})", {"\" x \"", "\"é\""}, {"\"\"", "\"  \""});
  expect(R"({"pattern":"^(foo|ba[rz])?$"})", {"\"\"", "\"foo\"", "\"baz\""}, {"\"fo\"", "\"foobar\""});
  expect(R"({"pattern":"^\"\\\\$"})", {R"("\"\\")"}, {R"(""\")"});
  expect(R"({"pattern":"^[^a-z]$"})", {"\"A\"", "\"é\"", R"("\n")", R"("\"")"}, {"\"a\"", "\"AA\""});
  expect(R"({"type":"string","format":"date"})", {"\"2026-11-30\""}, {"\"2026-13-01\"", "\"today\""});
  expect(R"({"type":"string","format":"date-time"})", {"\"2026-11-30T08:00:00Z\""}, {"\"2026-11-30\""});
  expect(R"({"type":"string","format":"whatever"})", {"\"x\""}, {"1"});
  expect(R"({"pattern":"^\\ud83d\\ude00$"})", {"\"😀\""}, {"\"\xF0\x9F\""});
  EXPECT_THAT(refusal(R"({"pattern":"\\ud83d"})"), HasSubstr("surrogate"));
  EXPECT_THAT(refusal(R"x({"pattern":"(?=a)"})x"), HasSubstr("pattern"));
  EXPECT_THAT(refusal(R"({"pattern":"a(b"})"), HasSubstr("pattern"));
  EXPECT_THAT(refusal(R"({"pattern":"\\bx"})"), HasSubstr("pattern"));
  EXPECT_THAT(refusal(R"({"pattern":"[z-a"})"), HasSubstr("pattern"));
  EXPECT_THAT(refusal(R"({"pattern":"a**"})"), HasSubstr("pattern"));
}

// Bytes that are no characters fit nowhere, however the string is limited.
TEST(JsonSchema, StringsAreUtf8) {
  const std::vector<std::string> characters = {"\u0080", "é",      "\u07ff", "\u0800", "漢",
                                               "\ud7ff", "\ue000", "\uffff", "😀",     "\U0010ffff"};
  const std::vector<std::string> broken = {
      "\x80",         "\xC3",         "\xC0\x80",         "\xE6\xBC",         "\xE0\x9F\xBF",
      "\xED\xA0\x80", "\xF0\x9F\x98", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
      "\xFF",         "é\xA9"};
  for (const char* schema : {R"({"type":"string"})", R"({"type":"string","maxLength":2})",
                             R"({"pattern":"^.$"})", R"({"pattern":"[^a]"})", R"({"type":"object"})"}) {
    const bool object = std::string_view(schema).find("object") != std::string_view::npos;
    GrammarAutomaton matcher = automaton(schema);
    const auto takes = [&](const std::string& text) {
      return accepts(matcher, object ? "{\"" + text + "\":1}" : "\"" + text + "\"");
    };
    for (const std::string& text : characters) EXPECT_TRUE(takes(text)) << schema << " " << text;
    for (const std::string& text : broken)
      EXPECT_FALSE(takes(text)) << schema << " " << testing::PrintToString(text);
  }
}

TEST(JsonSchema, Objects) {
  const std::string abc = R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},
                              "c":{"type":"boolean"}},"required":["b"]})";
  expect(abc,
         {R"({"b":"x"})", R"({"a":1,"b":"x","c":true})", R"({"a": 1, "b": "x"})", R"({"b":"x","c":false})"},
         {"{}", R"({"a":1})", R"({"b":"x","a":1})", R"({"b":"x","d":1})", R"({"b":"x",})", R"({,"b":"x"})"});
  expect(R"({"properties":{"a":{}},"additionalProperties":{"type":"integer"}})",
         {"{}", R"({"a":"x"})", R"({"a":null,"z":1,"y":2})", R"({"z":1})"}, {R"({"z":"x"})", R"({"a":1,})"});
  expect(R"({"type":"object","additionalProperties":false})", {"{}"}, {R"({"a":1})"});
  expect(R"({"type":"object","properties":{},"additionalProperties":{"type":"null"}})",
         {"{}", R"({"k":null})"}, {R"({"k":1})"});
  expect(R"({"type":"object","required":["x"]})", {R"({"x":[1]})"}, {"{}"});
}

TEST(JsonSchema, Arrays) {
  expect(R"({"type":"array","items":{"type":"integer"}})", {"[]", "[1]", "[1, 2,3]"}, {"[1,]", "[\"a\"]"});
  expect(R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3})", {"[1,2]", "[1,2,3]"},
         {"[]", "[1]", "[1,2,3,4]"});
  expect(R"({"prefixItems":[{"type":"integer"},{"type":"string"}],"items":false})", {"[1,\"a\"]"},
         {"[1]", "[\"a\",1]"});
  expect(R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"});
}

TEST(JsonSchema, Combinations) {
  expect(R"({"anyOf":[{"type":"integer"},{"type":"string"}]})", {"1", "\"a\""}, {"null"});
  expect(R"({"type":"object","properties":{"k":{"const":1}},"required":["k"],
             "oneOf":[{"properties":{"x":{"type":"null"}},"required":["x"]},{"properties":{"y":{"type":"null"}},
             "required":["y"]}]})",
         {R"({"k":1,"x":null})", R"({"k":1,"y":null})"}, {R"({"k":1})", R"({"x":null})"});
  expect(R"({"allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},
                      {"properties":{"b":{"type":"null"}},"required":["b"]}]})",
         {R"({"a":1,"b":null})"}, {R"({"a":1})", R"({"b":null})"});
  const std::string tree = R"({"$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},
      "next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"]}},"$ref":"#/$defs/node"})";
  expect(tree, {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":null}})"}, {R"({"v":1})"});
  expect(R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]"});
}

TEST(JsonSchema, WhatItCannotTakeIsNamed) {
  EXPECT_THAT(refusal(R"({"properties":{"a":{"items":{"not":{}}}}})"), HasSubstr("properties.a.items.not"));
  EXPECT_THAT(refusal(R"({"patternProperties":{"a":{}}})"), HasSubstr("patternProperties"));
  EXPECT_THAT(refusal(R"({"$ref":"http://example.com/x"})"), HasSubstr("$ref"));
  EXPECT_THAT(refusal(R"({"$ref":"#"})"), HasSubstr("itself"));
  EXPECT_THAT(refusal(R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})"), HasSubstr("itself"));
  EXPECT_THAT(refusal(R"({"type":"text"})"), HasSubstr("type"));
  EXPECT_THAT(refusal(R"({"type":5})"), HasSubstr("type"));
  EXPECT_THAT(refusal(R"({"enum":[]})"), HasSubstr("enum"));
  EXPECT_THAT(refusal(R"({"properties":5})"), HasSubstr("properties"));
  EXPECT_THAT(refusal(R"({"type":"string","maxLength":-1})"), HasSubstr("maxLength"));
  EXPECT_THAT(refusal(R"({"properties":{"a":false}})"), HasSubstr("properties.a"));
  EXPECT_THAT(refusal("5"), HasSubstr("schema"));
  std::string deep = "{}";
  for (int i = 0; i < 200; ++i) deep = "{\"items\":" + deep + "}";
  EXPECT_THAT(refusal(deep), HasSubstr("nested"));
  // Would grow without end if merged schemas were not recognised.
  EXPECT_THAT(refusal(R"({"allOf":[{"$ref":"#"},{"$ref":"#"}]})"), HasSubstr("itself"));
}

// The mask says of every token what reading its bytes says.
TEST(GrammarAutomaton, MasksAgreeWithReading) {
  const Tokenizer tokenizer = *Tokenizer::parse(test::tiny_tokenizer_json());
  const std::string text = R"({"name": "a \"b\" é😀", "tags": ["x", "yy"], "n": 12, "o": {"k": null}})";
  for (const std::string& schema :
       {std::string("{}"),
        std::string(
            R"({"properties":{"name":{"type":"string","maxLength":20},"tags":{"items":{"type":"string"}},
                "n":{"type":"integer","maximum":99},"o":{}}})")}) {
    GrammarAutomaton matcher = automaton(schema);
    GrammarAutomaton::State state = matcher.start();
    for (const char c : text) {
      TokenMask mask;
      matcher.allowed(state, mask);
      for (TokenId id = 0; id < tokenizer.end(); ++id) {
        const bool text_token = tokenizer.has_token(id) && !tokenizer.is_special(id) &&
                                id != tokenizer.added_token("<think>") &&
                                id != tokenizer.added_token("</think>");
        const bool leads_on =
            text_token && matcher.read(state, tokenizer.bytes(id)) != GrammarAutomaton::kDead;
        ASSERT_EQ(has_bit(mask, id), leads_on) << id << " " << tokenizer.bytes(id);
      }
      state = matcher.read(state, std::string_view(&c, 1));
      ASSERT_NE(state, GrammarAutomaton::kDead);
    }
    EXPECT_TRUE(matcher.accepts(state));
  }
}

// Tokens that hold whole characters, parts of them and both.
TEST(GrammarAutomaton, MasksKnowWholeCharacters) {
  const Tokenizer tokenizer = test::parse(test::small_tokenizer_json({{"\xC3", "\xA9"},
                                                                      {"\xE6", "\xBC"},
                                                                      {"\xE6\xBC", "\xA2"},
                                                                      {"a", "\xE6\xBC\xA2"},
                                                                      {"\xE6\xBC\xA2", "\xC3"},
                                                                      {"\xF0", "\x9F"},
                                                                      {"\xA2", "\""},
                                                                      {"\xC3\xA9", "\""},
                                                                      {"\xED", "\xA0"}}));
  const auto small = std::make_shared<const TokenVocabulary>(tokenizer);
  for (const char* schema : {R"({"type":"string"})", R"({"type":"string","maxLength":2})",
                             R"({"pattern":"^[^a]*$"})", R"({"pattern":"^[é漢a]*$"})"}) {
    auto grammar = json_schema_grammar(Json::parse(schema));
    ASSERT_TRUE(grammar.ok()) << grammar.error().message;
    GrammarAutomaton matcher(std::move(grammar).value(), small);
    for (const char* begun : {"\"", "\"\xC3", "\"\xE6", "\"\xE6\xBC", "\"\xF0\x9F", "\"é"}) {
      const auto state = matcher.read(matcher.start(), begun);
      if (state == GrammarAutomaton::kDead) continue;
      TokenMask mask;
      matcher.allowed(state, mask);
      for (TokenId id = 0; id < 265; ++id) {
        const bool leads_on = matcher.read(state, tokenizer.bytes(id)) != GrammarAutomaton::kDead;
        EXPECT_EQ(has_bit(mask, id), leads_on)
            << schema << " " << begun << " " << testing::PrintToString(tokenizer.bytes(id));
      }
    }
  }
}

// Whatever is drawn from the masks is JSON, and ends once it has to.
TEST(GrammarAutomaton, RandomDrawsAreJson) {
  const Tokenizer tokenizer = *Tokenizer::parse(test::tiny_tokenizer_json());
  std::mt19937 random(3);  // NOLINT(cert-msc51-cpp): the same draws every time
  for (const std::string schema :
       {R"({"type":"object","properties":{"a":{"type":"string","maxLength":9},"b":{"type":"array","items":
            {"type":"integer"},"maxItems":4},"c":{"enum":["x","yy"]}},"required":["a","b","c"],"additionalProperties":false})",
        R"({"type":"array","items":{"type":"string","format":"uuid"},"minItems":1,"maxItems":2})",
        R"({"type":"object","properties":{"d":{"type":"string","format":"date-time"},"n":{"type":"number"}},
            "required":["d"]})"}) {
    GrammarAutomaton matcher = automaton(schema);
    for (int round = 0; round < 40; ++round) {
      std::string text;
      GrammarAutomaton::State state = matcher.start();
      for (int step = 0; step < 2000 && !(matcher.accepts(state) && !text.empty()); ++step) {
        TokenMask mask;
        matcher.allowed(state, mask);
        std::vector<TokenId> ids;
        for (TokenId id = 0; id < tokenizer.end(); ++id) {
          if (has_bit(mask, id)) ids.push_back(id);
        }
        ASSERT_FALSE(ids.empty()) << text;
        const TokenId id = ids[random() % ids.size()];
        text += tokenizer.bytes(id);
        state = matcher.read(state, tokenizer.bytes(id));
      }
      ASSERT_TRUE(matcher.accepts(state)) << text;
      EXPECT_TRUE(utf8::is_valid(text)) << testing::PrintToString(text);
      EXPECT_TRUE(Json::accept(text)) << text;
    }
  }
}

// Places far from both ends of a counted string share a mask; near the ends each has its own.
TEST(GrammarAutomaton, CountedStringsAreExact) {
  const Tokenizer tokenizer = *Tokenizer::parse(test::tiny_tokenizer_json());
  ASSERT_LE(vocabulary()->all().depth(), Grammar::kReach);
  GrammarAutomaton matcher = automaton(R"({"type":"string","minLength":300,"maxLength":900})");
  GrammarAutomaton::State state = matcher.read(matcher.start(), "\"");
  std::size_t masks = 0;
  for (int length = 0; length <= 900; ++length) {
    if (length < 4 || length % 97 == 0 || (length > 290 && length < 303) || length > 895) {
      TokenMask mask;
      matcher.allowed(state, mask);
      for (TokenId id = 0; id < tokenizer.end(); ++id) {
        if (!tokenizer.has_token(id) || tokenizer.bytes(id).starts_with('<')) continue;
        const bool leads_on = matcher.read(state, tokenizer.bytes(id)) != GrammarAutomaton::kDead;
        ASSERT_EQ(has_bit(mask, id), leads_on) << length << " " << tokenizer.bytes(id);
      }
      if (length == 300) masks = matcher.size().masks;
    }
    if (length > 310 && length < 600) {
      TokenMask mask;
      matcher.allowed(state, mask);
    }
    if (length < 900) state = matcher.read(state, "x");
  }
  EXPECT_LT(matcher.size().masks, masks + 30);
  EXPECT_TRUE(matcher.accepts(matcher.read(state, "\"")));
  EXPECT_EQ(matcher.read(state, "x"), GrammarAutomaton::kDead);
}

TEST(GrammarAutomaton, StatesComeBack) {
  GrammarAutomaton matcher = automaton(R"({"type":"array","items":{"type":"string"}})");
  const auto inside = matcher.read(matcher.start(), "[\"a");
  EXPECT_EQ(matcher.read(inside, "bcd é"), inside);
  EXPECT_EQ(matcher.read(inside, "\", \"x"), matcher.read(inside, "\", \"x\", \"y"));
}

}  // namespace
}  // namespace lily
