#include "text/output_parser.h"

#include <gtest/gtest.h>

#include <random>
#include <variant>

#include "tests/text/small_tokenizer.h"
#include "text/utf8.h"

namespace lily {
namespace {

using test::kEndThink;
using test::kEndToolCall;
using test::kImStart;
using test::kThink;
using test::kToolCall;

const Tokenizer& tokenizer() {
  static const Tokenizer instance = test::parse(test::small_tokenizer_json({{"\n", "\n"},
                                                                            {"t", "h"},
                                                                            {"th", "i"},
                                                                            {"\xF0", "\x9F"},
                                                                            {"\x98", "\x80"},
                                                                            {"S", "t"},
                                                                            {"e", "p"},
                                                                            {"\xC3", "\xA9"}}));
  return instance;
}

const std::vector<TokenId> kThinking = {kImStart, 'a', kThink, '\n'};
const std::vector<TokenId> kNotThinking = {kImStart, 'a', kThink, '\n', '\n', kEndThink, '\n', '\n'};

// Ids from text (its bytes) and single ids.
std::vector<TokenId> ids(std::initializer_list<std::variant<std::string, TokenId>> parts) {
  std::vector<TokenId> out;
  for (const auto& part : parts) {
    if (const auto* id = std::get_if<TokenId>(&part)) {
      out.push_back(*id);
    } else {
      const std::vector<TokenId> bytes = test::byte_ids(std::get<std::string>(part));
      out.insert(out.end(), bytes.begin(), bytes.end());
    }
  }
  return out;
}

struct Answer {
  std::string reasoning;
  std::string content;
  bool stopped = false;
  bool in_reasoning = false;
  std::int64_t reasoning_tokens = 0;
  bool operator==(const Answer&) const = default;
};

void PrintTo(const Answer& answer, std::ostream* out) {
  *out << "{reasoning " << ::testing::PrintToString(answer.reasoning) << ", content "
       << ::testing::PrintToString(answer.content) << (answer.stopped ? ", stopped" : "") << "}";
}

Answer run(const std::vector<TokenId>& prompt, const std::vector<TokenId>& output,
           const std::vector<std::string>& stop = {}) {
  OutputParser parser(tokenizer(), prompt, {.stop = stop});
  Answer answer;
  const auto take = [&](const OutputDelta& delta) {
    EXPECT_TRUE(utf8::is_valid(delta.reasoning));
    EXPECT_TRUE(utf8::is_valid(delta.content));
    answer.reasoning += delta.reasoning;
    answer.content += delta.content;
    answer.stopped = answer.stopped || delta.stopped;
  };
  for (const TokenId id : output) {
    take(parser.push(id));
    if (answer.stopped) break;
  }
  take(parser.finish());
  answer.in_reasoning = parser.in_reasoning();
  answer.reasoning_tokens = parser.reasoning_tokens();
  return answer;
}

TEST(OutputParser, ThePromptSaysWhereTheAnswerBegins) {
  EXPECT_TRUE(starts_in_reasoning(tokenizer(), kThinking));
  EXPECT_FALSE(starts_in_reasoning(tokenizer(), kNotThinking));
  EXPECT_FALSE(starts_in_reasoning(tokenizer(), {}));
  EXPECT_FALSE(starts_in_reasoning(tokenizer(), test::byte_ids("<think>")));  // spelled, not the tag
  const std::vector<TokenId> reopened = ids({kThink, "x", kEndThink, "y", kThink});
  EXPECT_TRUE(starts_in_reasoning(tokenizer(), reopened));
}

TEST(OutputParser, SplitsAtTheClosingTag) {
  const Answer answer = run(kThinking, ids({"Let me see.\n", kEndThink, "\n\nIt is 4."}));
  EXPECT_EQ(answer.reasoning, "Let me see.");
  EXPECT_EQ(answer.content, "It is 4.");
  EXPECT_EQ(answer.reasoning_tokens, 13);
  EXPECT_FALSE(answer.in_reasoning);
  EXPECT_EQ(run(kNotThinking, ids({"It is 4."})).content, "It is 4.");
  EXPECT_EQ(run(kNotThinking, ids({"It is 4."})).reasoning_tokens, 0);
}

TEST(OutputParser, TrimsNewlinesAroundTheTagOnly) {
  const Answer answer = run(kThinking, ids({"a\n\nb\n\n\n", kEndThink, "\n\n\nc\n\nd\n"}));
  EXPECT_EQ(answer.reasoning, "a\n\nb");
  EXPECT_EQ(answer.content, "c\n\nd\n");
  EXPECT_EQ(run(kThinking, ids({"a \n ", kEndThink, " \nb"})).reasoning, "a \n ");
  EXPECT_EQ(run(kThinking, ids({"a \n ", kEndThink, " \nb"})).content, " \nb");
  const Answer nothing = run(kThinking, {'\n', 256, kEndThink, 256, '\n'});
  EXPECT_EQ(nothing.reasoning, "");
  EXPECT_EQ(nothing.content, "");
  EXPECT_EQ(run(kNotThinking, ids({"\n\nx"})).content, "\n\nx");  // no tag before it
}

// Cut while thinking: all of it is reasoning (field case B47).
TEST(OutputParser, CutInsideTheBlockLeavesContentEmpty) {
  const Answer answer = run(kThinking, ids({"Thinking about it\n"}));
  EXPECT_EQ(answer.reasoning, "Thinking about it\n");
  EXPECT_EQ(answer.content, "");
  EXPECT_TRUE(answer.in_reasoning);
}

// Spelled in ordinary tokens a tag is text (B51).
TEST(OutputParser, SpelledTagsAreText) {
  const Answer answer =
      run(kThinking, ids({"The tag </think> ends it. <think>", kEndThink, "Use </think>."}));
  EXPECT_EQ(answer.reasoning, "The tag </think> ends it. <think>");
  EXPECT_EQ(answer.content, "Use </think>.");
}

// Stray tags (B54) are dropped and lose nothing else.
TEST(OutputParser, StrayTags) {
  EXPECT_EQ(run(kThinking, ids({kThink, "\nHm", kEndThink, "A"})).reasoning, "Hm");
  EXPECT_EQ(run(kThinking, ids({"a", kThink, "\nb", kEndThink, "A"})).reasoning, "a\nb");
  EXPECT_EQ(run(kNotThinking, ids({kThink, "\n", kEndThink, "\n\nAnswer"})).content, "Answer");
  EXPECT_EQ(run(kNotThinking, ids({"Answer", kThink})).content, "Answer");
  EXPECT_EQ(run(kNotThinking, ids({"Answer", kThink, "\nmore"})).content, "Answer\nmore");
  EXPECT_EQ(run(kNotThinking, ids({"Answer", kEndThink})).content, "Answer");
  EXPECT_EQ(run(kThinking, ids({"r", kEndThink, "Answer", kEndThink, "!"})).content, "Answer!");
  EXPECT_EQ(run(kThinking, ids({"r", kEndThink, "\n", kEndThink, "\nAnswer"})).content, "Answer");
}

TEST(OutputParser, ToolCallTagsAreTextAndSpecialTokensAreNot) {
  const std::string call = "<tool_call>\nx\n</tool_call>";
  const Answer answer = run(kThinking, ids({"maybe ", kToolCall, "\nx\n", kEndToolCall, kEndThink, "\n\n",
                                            kToolCall, "\nx\n", kEndToolCall}));
  EXPECT_EQ(answer.reasoning, "maybe " + call);
  EXPECT_EQ(answer.content, call);
  EXPECT_EQ(run(kNotThinking, ids({"a", kImStart, "b"})).content, "ab");
}

TEST(OutputParser, StopStringsApplyToContentOnly) {
  // B57: the same words in the reasoning do not stop it.
  const Answer answer =
      run(kThinking, ids({"Step 1: think", kEndThink, "\n\nPlan. Step 1: act"}), {"Step 1:"});
  EXPECT_EQ(answer.reasoning, "Step 1: think");
  EXPECT_EQ(answer.content, "Plan. ");
  EXPECT_TRUE(answer.stopped);
  // Newlines that belong to the tag are not content.
  EXPECT_EQ(run(kThinking, ids({"r", kEndThink, "\n\nAnswer"}), {"\n\n"}).content, "Answer");
  // A stop string is not put together from both parts.
  EXPECT_EQ(run(kThinking, ids({"ab", kEndThink, "cd"}), {"bc"}).content, "cd");
}

// B59: a stop string that never comes changes nothing.
TEST(OutputParser, HoldBackStaysInStep) {
  const std::vector<TokenId> output =
      ids({"zz reasoning zzz\nzz", kEndThink, "\n\nzzz answer zzzzz ", kToolCall, "zz"});
  const Answer plain = run(kThinking, output);
  EXPECT_EQ(run(kThinking, output, {"zzzzzzzzzz"}), plain);
  EXPECT_EQ(plain.content, "zzz answer zzzzz <tool_call>zz");
}

TEST(OutputParser, CharactersAreNeverCut) {
  const Answer whole = run(kThinking, ids({"é😀", kEndThink, "ď👨‍👩‍👧"}));
  EXPECT_EQ(whole.reasoning, "é😀");
  EXPECT_EQ(whole.content, "ď👨‍👩‍👧");
  // Cut by the limit (B10), in either part, and with stop strings set.
  EXPECT_EQ(run(kNotThinking, ids({"ok ", 0xF0, 0x9F}), {"zz"}).content, "ok \uFFFD");
  EXPECT_EQ(run(kThinking, ids({"ok ", 0xF0, 0x9F})).reasoning, "ok \uFFFD");
  // And by the tag: the rest of the character is not glued to the content.
  const Answer cut = run(kThinking, ids({"a", 0xC3, kEndThink, 0xA9, "b"}));
  EXPECT_EQ(cut.reasoning, "a\uFFFD");
  EXPECT_EQ(cut.content, "\uFFFDb");
}

TEST(OutputParser, StopStringHeldAtTheEndIsReleased) {
  EXPECT_EQ(run(kNotThinking, ids({"abc END"}), {"END OF"}).content, "abc END");
  EXPECT_FALSE(run(kNotThinking, ids({"abc END"}), {"END OF"}).stopped);
  // U+FFFD of a cut character may still complete one.
  EXPECT_EQ(run(kNotThinking, ids({"a", 0xC3}), {"\uFFFD"}).content, "a");
}

TEST(OutputParser, StreamsWhatItCan) {
  OutputParser parser(tokenizer(), kThinking, {.stop = {"STOP"}});
  EXPECT_EQ(parser.push('a').reasoning, "a");
  EXPECT_TRUE(parser.push('\n').empty());  // may belong to the tag
  EXPECT_EQ(parser.push('b').reasoning, "\nb");
  EXPECT_TRUE(parser.push(kEndThink).empty());
  EXPECT_TRUE(parser.push(256).empty());
  EXPECT_EQ(parser.push('x').content, "x");
  EXPECT_TRUE(parser.push('S').empty());
  EXPECT_EQ(parser.push('x').content, "Sx");
}

std::shared_ptr<const ToolSet> tools() {
  static const auto set = [] {
    auto made = std::make_shared<ToolSet>();
    made->add("rm", {{"path", {.string = true}}});
    return made;
  }();
  return set;
}

// What came out, in a line: reasoning | content | calls.
std::string with_tools(const std::vector<TokenId>& prompt, const std::vector<TokenId>& output,
                       const std::vector<std::string>& stop = {}) {
  OutputParser parser(tokenizer(), prompt, {.stop = stop, .tools = tools()});
  OutputDelta all;
  std::string calls;
  const auto take = [&](const OutputDelta& delta) {
    EXPECT_TRUE(delta.content.empty() || calls.empty() || calls.ends_with('}')) << "content inside a call";
    all.reasoning += delta.reasoning;
    all.content += delta.content;
    all.stopped = all.stopped || delta.stopped;
    for (const ToolCallDelta& call : delta.calls) {
      if (!call.name.empty()) calls += " " + std::to_string(call.index) + " " + call.name + " ";
      calls += call.arguments;
    }
  };
  for (const TokenId id : output) {
    take(parser.push(id));
    if (all.stopped) break;
  }
  take(parser.finish());
  return all.reasoning + "|" + all.content + "|" + calls;
}

const std::string kCall = "<function=rm>\n<parameter=path>\na\n</parameter>\n</function>\n";

TEST(OutputParser, CallsComeOutOfTheContent) {
  EXPECT_EQ(with_tools(kNotThinking, ids({"Look.\n\n", kToolCall, "\n" + kCall, kEndToolCall})),
            "|Look.| 0 rm {\"path\":\"a\"}");
  EXPECT_EQ(with_tools(kThinking, ids({"hm\n", kEndThink, "\n\n", kToolCall, "\n" + kCall, kEndToolCall, "\n",
                                       kToolCall, "\n" + kCall, kEndToolCall, "\nbye"})),
            "hm|bye| 0 rm {\"path\":\"a\"} 1 rm {\"path\":\"a\"}");
  EXPECT_EQ(with_tools(kNotThinking, ids({"ends in <tool"})), "|ends in <tool|");
}

TEST(OutputParser, StopStringsDoNotSeeCalls) {
  const auto output = ids({"Look. ", kToolCall, "\n" + kCall, kEndToolCall, "\nSTOP more"});
  EXPECT_EQ(with_tools(kNotThinking, output, {"path"}), "|Look.\nSTOP more| 0 rm {\"path\":\"a\"}");
  EXPECT_EQ(with_tools(kNotThinking, output, {"STOP"}), "|Look.\n| 0 rm {\"path\":\"a\"}");
}

TEST(OutputParser, CallsTalkedAboutInTheReasoningAreReasoning) {
  const std::string text = "<tool_call>\n" + kCall + "</tool_call>";
  const auto mention =
      ids({"maybe ", kToolCall, "\n" + kCall, kEndToolCall, " no\n", kEndThink, "\n\nDone."});
  EXPECT_EQ(with_tools(kThinking, mention), "maybe " + text + " no|Done.|");
  const auto then_answered =
      ids({"maybe ", kToolCall, "\n" + kCall, kEndToolCall, "\n", kEndThink, "\n\nDone."});
  EXPECT_EQ(with_tools(kThinking, then_answered), "maybe " + text + "|Done.|");
  const auto then_called = ids({"maybe ", kToolCall, "\n" + kCall, kEndToolCall, "\n", kEndThink, "\n\n",
                                kToolCall, "\n" + kCall, kEndToolCall});
  EXPECT_EQ(with_tools(kThinking, then_called), "maybe " + text + "|| 0 rm {\"path\":\"a\"}");
  const auto never_closed = ids({"maybe ", kToolCall, "\n" + kCall, kEndToolCall, " no"});
  EXPECT_EQ(with_tools(kThinking, never_closed), "maybe " + text + " no||");
  const auto cut = ids({"maybe\n", kToolCall, "\n<function=rm>\n<par"});
  EXPECT_EQ(with_tools(kThinking, cut), "maybe\n<tool_call>\n<function=rm>\n<par||");
  EXPECT_EQ(with_tools(kThinking, ids({"a < b, <tool", kEndThink, "c"})), "a < b, <tool|c|");
}

TEST(OutputParser, ACallThatEndsTheReasoningIsTheAnswer) {
  const auto at_end = ids({"do it\n\n", kToolCall, "\n" + kCall, kEndToolCall});
  EXPECT_EQ(with_tools(kThinking, at_end), "do it|| 0 rm {\"path\":\"a\"}");
  const auto then_closed = ids({"do it\n\n", kToolCall, "\n" + kCall, kEndToolCall, "\n", kEndThink, "\n\n"});
  EXPECT_EQ(with_tools(kThinking, then_closed), "do it|| 0 rm {\"path\":\"a\"}");
  const auto unknown = ids({"x ", kToolCall, "\n<function=ls>\n</function>\n", kEndToolCall});
  EXPECT_EQ(with_tools(kThinking, unknown), "x <tool_call>\n<function=ls>\n</function>\n</tool_call>||");
}

TEST(OutputParser, PlainTextIsAllContent) {
  OutputParser parser(tokenizer(), kThinking, {.tools = tools(), .plain = true});
  std::string content;
  for (const TokenId id : ids({"a", kEndThink, "\n", kToolCall})) content += parser.push(id).content;
  EXPECT_EQ(content + parser.finish().content, "a</think>\n<tool_call>");
}

// The same bytes cut into other tokens give the same answer.
TEST(OutputParser, DoesNotDependOnTokenBoundaries) {
  const std::vector<std::string> atoms = {"a",  "\n", "\n\n", "thi",  "Step",    "é",
                                          "😀", "St", "zz",   "\xC3", "\xF0\x9F"};
  std::mt19937 random(11);
  for (int round = 0; round < 5000; ++round) {
    std::vector<TokenId> merged;
    std::vector<TokenId> bytes;
    for (std::size_t n = random() % 10; n > 0; --n) {
      if (random() % 5 == 0) {
        const TokenId tag = random() % 3 == 0 ? kThink : kEndThink;
        merged.push_back(tag);
        bytes.push_back(tag);
        continue;
      }
      std::string text;
      for (std::size_t m = 1 + random() % 4; m > 0; --m) text += atoms[random() % atoms.size()];
      // The tokenizer repairs broken bytes, so those go in as they are on both sides.
      const std::vector<TokenId> as_bytes = test::byte_ids(text);
      const std::vector<TokenId> as_merged = utf8::is_valid(text) ? tokenizer().encode(text) : as_bytes;
      merged.insert(merged.end(), as_merged.begin(), as_merged.end());
      bytes.insert(bytes.end(), as_bytes.begin(), as_bytes.end());
    }
    const std::vector<TokenId>& prompt = random() % 2 == 0 ? kThinking : kNotThinking;
    Answer a = run(prompt, merged, {"Stepa", "zzé"});
    Answer b = run(prompt, bytes, {"Stepa", "zzé"});
    a.reasoning_tokens = b.reasoning_tokens = 0;
    ASSERT_EQ(a, b);
  }
}

}  // namespace
}  // namespace lily
