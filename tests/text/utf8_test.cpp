#include "text/utf8.h"

#include <gtest/gtest.h>

namespace lily::utf8 {
namespace {

TEST(Utf8, ReplacesEachMaximalSubpartOnce) {
  // The table of the Unicode standard, section 3.9, and its neighbours.
  EXPECT_EQ(sanitize("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a\uFFFD\uFFFD\uFFFD"
            "b\uFFFD"
            "c\uFFFD\uFFFD"
            "d");
  EXPECT_EQ(sanitize("\xC0\xAF"), "\uFFFD\uFFFD");                      // overlong
  EXPECT_EQ(sanitize("\xE0\x80\xAF"), "\uFFFD\uFFFD\uFFFD");            // overlong
  EXPECT_EQ(sanitize("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");            // a surrogate
  EXPECT_EQ(sanitize("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // past U+10FFFF
  EXPECT_EQ(sanitize("\xF0\x9F\x98"), "\uFFFD");                        // cut off
  EXPECT_EQ(sanitize("\xFF"), "\uFFFD");
}

TEST(Utf8, KeepsWhatIsValid) {
  const std::string text =
      std::string("\0a", 2) + "\x7F\u0080\u07FF\u0800\uD7FF\uE000\uFFFF\U00010000\U0010FFFF";
  EXPECT_TRUE(is_valid(text));
  EXPECT_EQ(sanitize(text), text);
  EXPECT_FALSE(is_valid("a\x80"));
}

TEST(Utf8, AppendIsTheInverseOfDecode) {
  for (char32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 97) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append(c, text);
    const Sequence sequence = decode(text);
    ASSERT_EQ(sequence.status, Status::kValid) << static_cast<unsigned>(c);
    ASSERT_EQ(sequence.code_point, c);
    ASSERT_EQ(sequence.length, text.size());
  }
}

TEST(Utf8, DrainKeepsTheStartOfASequence) {
  std::string pending = "a\xE2\x82";
  std::string out;
  drain(pending, out);
  EXPECT_EQ(out, "a");
  EXPECT_EQ(pending, "\xE2\x82");
  pending +=
      "\xAC\xF0\x9F"
      "b";  // the euro sign, then a broken emoji
  drain(pending, out);
  EXPECT_EQ(out,
            "a€\uFFFD"
            "b");
  EXPECT_TRUE(pending.empty());
}

TEST(Utf8, QuotesForMessages) {
  EXPECT_EQ(utf8::quoted("a \"b\" \xC3\xA9"), "\"a \\x22b\\x22 \xC3\xA9\"");
  EXPECT_EQ(utf8::quoted("\xDC"), "\"\\xdc\"");
  EXPECT_EQ(utf8::quoted(std::string_view("\0\n\x7f\\", 4)), "\"\\x00\\x0a\\x7f\\x5c\"");
  EXPECT_EQ(utf8::quoted("x\xE4\xB8"), "\"x\\xe4\\xb8\"");
}

}  // namespace
}  // namespace lily::utf8
