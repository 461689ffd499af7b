#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace lily {
namespace {

// The text that comes out when the pieces go in, with "|" where a stop string ended it.
std::string run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopStrings matcher(stops);
  std::string out;
  for (const std::string& piece : pieces) {
    if (matcher.push(piece, out)) return out + "|";
  }
  matcher.finish(out);
  return out;
}

TEST(StopStrings, MatchesAcrossPieces) {
  const std::vector<std::string> tokens = {"red", " blue", " gre", "en", " gold"};
  EXPECT_EQ(run({"blue green"}, tokens), "red |");
  EXPECT_EQ(run({"e gre"}, tokens), "red blu|");
  EXPECT_EQ(run({"en g"}, tokens), "red blue gre|");
  EXPECT_EQ(run({"blue gray", "gold!"}, tokens), "red blue green gold");
  EXPECT_EQ(run({"blue green", "lue gre"}, tokens), "red b|");  // the shorter is complete first
  EXPECT_EQ(run({"green", "blue green"}, tokens), "red |");     // complete at the same byte: the longest
  EXPECT_EQ(run({"red"}, tokens), "|");
  EXPECT_EQ(run({"gold"}, tokens), "red blue green |");
}

TEST(StopStrings, Overlaps) {
  EXPECT_EQ(run({"aab"}, {"aaab"}), "a|");
  EXPECT_EQ(run({"aab"}, {"a", "a", "a", "b"}), "a|");
  EXPECT_EQ(run({"abab"}, {"aba", "cababab"}), "abac|");
  EXPECT_EQ(run({"aaaa"}, {"aaa", "b"}), "aaab");
  EXPECT_EQ(run({"ab", "b"}, {"xab"}), "x|");
  EXPECT_EQ(run({""}, {"abc"}), "abc");
  EXPECT_EQ(run({}, {"abc", ""}), "abc");
}

TEST(StopStrings, HoldsBackNoMoreThanItMust) {
  StopStrings matcher({"abc", "bx"});
  std::string out;
  EXPECT_FALSE(matcher.push("zab", out));
  EXPECT_EQ(out, "z");
  EXPECT_FALSE(matcher.push("", out));
  EXPECT_EQ(out, "z");
  EXPECT_FALSE(matcher.push("d", out));
  EXPECT_EQ(out, "zabd");
  EXPECT_FALSE(matcher.push("b", out));
  EXPECT_EQ(out, "zabd");
  matcher.finish(out);
  EXPECT_EQ(out, "zabdb");
}

TEST(StopStrings, KeepsCharactersWhole) {
  StopStrings matcher({"é!"});
  std::string out;
  EXPECT_FALSE(matcher.push("xé", out));
  EXPECT_EQ(out, "x");
  EXPECT_FALSE(matcher.push("è", out));
  EXPECT_EQ(out, "xéè");
}

// Against the definition: the first end of any stop string, and of those the earliest start, for every way to
// cut.
TEST(StopStrings, AgreesWithSearchHoweverCut) {
  std::mt19937 random(5);
  const auto word = [&](std::size_t longest) {
    std::string text;
    for (std::size_t n = random() % longest; n > 0; --n) text += static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 20000; ++round) {
    const std::vector<std::string> stops = {word(5), word(6)};
    const std::string text = word(14);
    std::string expected = text;
    std::size_t best_end = std::string::npos;
    for (const std::string& stop : stops) {
      const std::size_t start = stop.empty() ? std::string::npos : text.find(stop);
      if (start == std::string::npos || start + stop.size() > best_end) continue;
      if (start + stop.size() == best_end && start + 1 >= expected.size()) continue;
      best_end = start + stop.size();
      expected = text.substr(0, start) + "|";
    }
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < text.size();) {
      pieces.push_back(text.substr(at, 1 + random() % 4));
      at += pieces.back().size();
    }
    ASSERT_EQ(run(stops, pieces), expected) << text << " / " << stops[0] << " / " << stops[1];
  }
}

}  // namespace
}  // namespace lily
