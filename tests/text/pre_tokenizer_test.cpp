#include "text/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "text/utf8.h"

namespace lily {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> pieces_of(const PreTokenizer& splitter, std::string_view text) {
  std::vector<std::string_view> views;
  splitter.split(text, views);
  return {views.begin(), views.end()};
}

std::vector<std::string> qwen(std::string_view text) {
  return pieces_of(*make_qwen_pre_tokenizer(), text);
}

TEST(QwenSplit, MarksBelongToWords) {
  EXPECT_EQ(qwen("नमस्ते दुनिया").size(), 2U);
  EXPECT_THAT(qwen("\u0301abc"), ElementsAre("\u0301abc"));
  EXPECT_THAT(qwen("a\u200db"), ElementsAre("a", "\u200db"));
  EXPECT_THAT(qwen("\u0915\u094d\u0937 \uac01"), ElementsAre("\u0915\u094d\u0937", " \uac01"));
  EXPECT_THAT(qwen("a\u0345\u0345"), ElementsAre("a\u0345\u0345"));
  EXPECT_THAT(qwen("!\u0301"), ElementsAre("!\u0301"));
}

TEST(QwenSplit, DigitsAreSingle) {
  EXPECT_THAT(qwen("12345"), ElementsAre("1", "2", "3", "4", "5"));
  EXPECT_THAT(qwen("x 1 2"), ElementsAre("x", " ", "1", " ", "2"));
  EXPECT_THAT(qwen("3.14e-10"), ElementsAre("3", ".", "1", "4", "e", "-", "1", "0"));
  EXPECT_THAT(qwen("a½Ⅳ²١"), ElementsAre("a", "½", "Ⅳ", "²", "١"));
}

TEST(QwenSplit, Contractions) {
  EXPECT_THAT(qwen("I'm we'RE it'll"), ElementsAre("I", "'m", " we", "'RE", " it", "'ll"));
  EXPECT_THAT(qwen("'lx 'l"), ElementsAre("'lx", " '", "l"));
  EXPECT_THAT(qwen("'sx"), ElementsAre("'s", "x"));
  EXPECT_THAT(qwen("x'\u017f"), ElementsAre("x", "'\u017f"));
  EXPECT_THAT(qwen("'"), ElementsAre("'"));
}

TEST(QwenSplit, PunctuationTakesASpaceBeforeAndNewlinesAfter) {
  EXPECT_THAT(qwen("a !?\n\nb"), ElementsAre("a", " !?\n\n", "b"));
  EXPECT_THAT(qwen("  !x"), ElementsAre(" ", " !", "x"));
  EXPECT_THAT(qwen("-x --x"), ElementsAre("-x", " --", "x"));
  EXPECT_THAT(qwen("\tx\u00a0y"), ElementsAre("\tx", "\u00a0y"));
}

TEST(QwenSplit, Blanks) {
  EXPECT_THAT(qwen("a \n b"), ElementsAre("a", " \n", " b"));
  EXPECT_THAT(qwen("a\n\n   b"), ElementsAre("a", "\n\n", "  ", " b"));
  EXPECT_THAT(qwen("a   "), ElementsAre("a", "   "));
  EXPECT_THAT(qwen("a   1"), ElementsAre("a", "  ", " ", "1"));
  EXPECT_THAT(qwen(" \r\n \t x"), ElementsAre(" \r\n", " \t", " x"));
  EXPECT_THAT(qwen("\u2028\u2028x"), ElementsAre("\u2028", "\u2028x"));
  EXPECT_THAT(qwen("\n"), ElementsAre("\n"));
  EXPECT_THAT(qwen(" "), ElementsAre(" "));
  EXPECT_TRUE(qwen("").empty());
}

// The hand-written splitter and PCRE2 on the same pattern: two implementations that share nothing. Code
// points are from scripts that both Unicode versions know.
TEST(QwenSplit, AgreesWithPcre2) {
  const auto regex = make_regex_pre_tokenizer(std::string(kQwenSplitPattern));
  ASSERT_TRUE(regex.ok()) << regex.error().message;
  const std::vector<std::string> atoms = {
      "a",      "Z",  "'",  "s",      "RE",   "ll", "D",      "1",          "½",      " ",      "  ",
      "\n",     "\r", "\t", "!",      "-",    "é",  "漢",     "\u0301",     "\u093f", "\u00a0", "\u2003",
      "\u200d", "👩", "٣",  "\u0085", "\x1c", "_",  "\u017f", "\U0001d538", "\u3000", "."};
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (std::size_t n = random() % 12; n > 0; --n) text += atoms[random() % atoms.size()];
    ASSERT_EQ(qwen(text), pieces_of(**regex, text)) << text;
  }
}

TEST(RegexSplit, TakesThePatternAsItIs) {
  // Qwen2's: marks are not letters there.
  const auto splitter = PreTokenizer::create(
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
  ASSERT_TRUE(splitter.ok());
  EXPECT_THAT(pieces_of(**splitter, "\u0301abc e\u0323\u0301x"),
              ElementsAre("\u0301abc", " e", "\u0323\u0301", "x"));
}

TEST(RegexSplit, KeepsGapsAndSkipsEmptyMatches) {
  const auto digits = make_regex_pre_tokenizer("[0-9]+");
  ASSERT_TRUE(digits.ok());
  EXPECT_THAT(pieces_of(**digits, "ab12é3"), ElementsAre("ab", "12", "é", "3"));
  EXPECT_THAT(pieces_of(**digits, "none"), ElementsAre("none"));
  const auto empty = make_regex_pre_tokenizer("x*");
  ASSERT_TRUE(empty.ok());
  EXPECT_THAT(pieces_of(**empty, "éxxé"), ElementsAre("é", "xx", "é"));
}

TEST(RegexSplit, RefusesWhatDoesNotCompile) {
  const auto splitter = PreTokenizer::create("(a");
  ASSERT_FALSE(splitter.ok());
  EXPECT_EQ(splitter.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(splitter.error().message.find("offset 2"), std::string::npos) << splitter.error().message;
}

// Every piece is matched without recursion and the text is gone through once, whatever the run is made of.
TEST(QwenSplit, LongRuns) {
  for (const std::string unit : {"A", "漢", "\u0301", "!", " ", "\n", " \n", "'", "1", "\u00a0", "'s"}) {
    std::string text;
    for (int i = 0; i < 300000; ++i) text += unit;
    std::string joined;
    for (const std::string& piece : qwen(text + "x")) joined += piece;
    ASSERT_EQ(joined, text + "x");
  }
}

}  // namespace
}  // namespace lily
