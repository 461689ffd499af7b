#include "cli/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lily {
namespace {

OutputDelta delta(std::string reasoning, std::string content) {
  OutputDelta d;
  d.reasoning = std::move(reasoning);
  d.content = std::move(content);
  return d;
}

std::string shown(bool styled, const std::vector<OutputDelta>& deltas) {
  AnswerText text(styled);
  std::string all;
  for (const OutputDelta& d : deltas) all += text.add(d);
  return all + text.finish();
}

TEST(AnswerText, ContentAloneIsLeftAsItIs) {
  EXPECT_EQ(shown(true, {delta("", "a"), delta("", ""), delta("", "b")}), "ab");
  EXPECT_EQ(shown(false, {delta("", "a"), delta("", "b")}), "ab");
}

TEST(AnswerText, ReasoningIsDimmedOrMarked) {
  const std::vector<OutputDelta> deltas = {delta("hm", ""), delta("m", ""), delta("", "yes")};
  EXPECT_EQ(shown(true, deltas), "\x1b[2mhmm\x1b[0m\n\nyes");
  EXPECT_EQ(shown(false, deltas), "<think>\nhmm\n</think>\n\nyes");
}

TEST(AnswerText, OneDeltaMayHoldBoth) {
  EXPECT_EQ(shown(false, {delta("a", "b")}), "<think>\na\n</think>\n\nb");
}

TEST(AnswerText, CutReasoningResetsTheStyle) {
  EXPECT_EQ(shown(true, {delta("hm", "")}), "\x1b[2mhm\x1b[0m");
  EXPECT_EQ(shown(false, {delta("hm", "")}), "<think>\nhm");
}

TEST(FormatSummary, CountsTheFirstTokenToThePrompt) {
  Answer answer;
  answer.usage.prompt_tokens = 100;
  answer.usage.completion_tokens = 11;
  answer.usage.prefill_seconds = 0.5;
  answer.usage.decode_seconds = 2;
  EXPECT_EQ(format_summary(answer),
            "100 + 11 tokens, 200 tok/s prompt, 5.0 tok/s answer, first token after 0.5 s");
}

TEST(FormatSummary, SurvivesAnAnswerOfOneTokenAndSaysWhenItWasCut) {
  Answer answer;
  answer.usage.prompt_tokens = 1;
  answer.usage.completion_tokens = 1;
  answer.reason = FinishReason::kLength;
  EXPECT_THAT(format_summary(answer), testing::HasSubstr("0.0 tok/s answer"));
  EXPECT_THAT(format_summary(answer), testing::EndsWith(", cut at the token limit"));
  answer.reason = FinishReason::kCancelled;
  EXPECT_THAT(format_summary(answer), testing::EndsWith(", stopped"));
}

}  // namespace
}  // namespace lily
