#include "text/normalizer.h"

#include <gtest/gtest.h>

#include <string>

namespace lily {
namespace {

std::string normalized(std::string_view text) {
  std::string storage;
  return std::string(nfc(text, storage));
}

TEST(Nfc, ComposesAndOrders) {
  EXPECT_EQ(normalized("e\u0301"), "\u00e9");
  EXPECT_EQ(normalized("\u212b \u2126"), "\u00c5 \u03a9");  // Ångström and ohm signs
  EXPECT_EQ(normalized("q\u0307\u0323"), "q\u0323\u0307");  // by combining class
  EXPECT_EQ(normalized("a\u0323\u0307\u0302"), "\u1ea1\u0307\u0302");
  EXPECT_EQ(normalized("\u1100\u1161\u11a8"), "\uac01");  // Hangul
  EXPECT_EQ(normalized("\uac00\u11a8"), "\uac01");
  EXPECT_EQ(normalized("\u0958"), "\u0915\u093c");  // composition exclusion
  EXPECT_EQ(normalized("\u0344"), "\u0308\u0301");
}

TEST(Nfc, LeavesWhatItNeedNotTouch) {
  const std::string text = "plain, Caffè già, 中文 한국어 Привет 👩‍💻";
  std::string storage;
  const std::string_view same = nfc(text, storage);
  EXPECT_EQ(same.data(), text.data());
  EXPECT_EQ(same, text);
  EXPECT_EQ(normalized(""), "");
  EXPECT_EQ(normalized(std::string("\0e\u0301", 4)), std::string("\0\u00e9", 3));
}

// The reference's tables are those of Unicode 9: younger marks neither move nor let others pass.
TEST(Nfc, TreatsYoungMarksAsStarters) {
  EXPECT_EQ(normalized("q\u0898\u0334"), "q\u0898\u0334");  // U+0898 is of class 230 since Unicode 14
  EXPECT_EQ(normalized("e\u1ac1\u0301"), "e\u1ac1\u0301");
  EXPECT_EQ(normalized("\U00011935\U00011930"), "\U00011935\U00011930");  // composes since Unicode 13
  EXPECT_EQ(normalized("e\u0301\u1ac1e\u0301"), "\u00e9\u1ac1\u00e9");
}

// Quadratic sorting of marks would take minutes here.
TEST(Nfc, OrdersLongRunsOfMarks) {
  constexpr int kPairs = 200000;
  std::string text = "q";
  std::string expected = "q";
  for (int i = 0; i < kPairs; ++i) text += "\u0307\u0323";
  for (int i = 0; i < kPairs; ++i) expected += "\u0323";
  for (int i = 0; i < kPairs; ++i) expected += "\u0307";
  EXPECT_EQ(normalized(text), expected);
}

}  // namespace
}  // namespace lily
