#include "engine/checkpoint_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lily {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr TokenId kTurn = 9;

// A prompt of `size` tokens with messages that start at `starts`.
std::vector<TokenId> prompt(std::size_t size, const std::vector<std::size_t>& starts) {
  std::vector<TokenId> out(size, 1);
  for (const std::size_t start : starts) out[start] = kTurn;
  return out;
}

TEST(CheckpointPlan, StandsOnTheGridBeforeTheFirstAndTheLastMessage) {
  EXPECT_THAT(checkpoint_plan(prompt(1000, {0, 300, 700, 990}), kTurn, 0, 0), ElementsAre(256, 960));
  EXPECT_THAT(checkpoint_plan(prompt(1000, {0, 320, 990}), kTurn, 0, 0), ElementsAre(320, 960));
}

TEST(CheckpointPlan, HasNothingForAShortPrompt) {
  EXPECT_THAT(checkpoint_plan(prompt(1, {0}), kTurn, 0, 0), IsEmpty());
  EXPECT_THAT(checkpoint_plan(prompt(128, {0, 127}), kTurn, 0, 0), IsEmpty());
  EXPECT_THAT(checkpoint_plan(prompt(129, {0, 128}), kTurn, 0, 0), ElementsAre(128));
}

TEST(CheckpointPlan, LeavesRoomBehindWhereReadingBegins) {
  EXPECT_THAT(checkpoint_plan(prompt(1000, {0, 300, 990}), kTurn, 832, 832), ElementsAre(960));
  EXPECT_THAT(checkpoint_plan(prompt(1000, {0, 300, 990}), kTurn, 833, 833), IsEmpty());
  EXPECT_THAT(checkpoint_plan(prompt(1000, {0, 300, 990}), kTurn, 1, 1), ElementsAre(256, 960));
}

TEST(CheckpointPlan, StandsWhereThePromptLeavesWhatIsCached) {
  EXPECT_THAT(checkpoint_plan(prompt(1000, {0, 990}), kTurn, 0, 500), ElementsAre(448, 960));
  EXPECT_THAT(checkpoint_plan(prompt(1000, {0, 990}), kTurn, 448, 500), ElementsAre(960));
  // Nothing is left to read behind the last token.
  EXPECT_THAT(checkpoint_plan(prompt(640, {0}), kTurn, 0, 640), ElementsAre(576));
}

TEST(CheckpointPlan, CrowdedPositionsGiveWayToMoreUsefulOnes) {
  EXPECT_THAT(checkpoint_plan(prompt(1000, {0, 900, 990}), kTurn, 0, 0), ElementsAre(960));
  EXPECT_THAT(checkpoint_plan(prompt(1000, {0, 990}), kTurn, 0, 900), ElementsAre(896));
}

TEST(CheckpointPlan, ALongStretchHasOneInEveryInterval) {
  const auto plain = checkpoint_plan(prompt(9000, {0, 8990}), kTurn, 0, 0);
  EXPECT_THAT(plain, ElementsAre(2048, 4096, 6144, 8192, 8960));
  const auto messages = checkpoint_plan(prompt(9000, {0, 400, 1900, 5000, 8990}), kTurn, 0, 0);
  EXPECT_THAT(messages, ElementsAre(384, 1856, 4096, 4992, 8192, 8960));
}

TEST(CheckpointPlan, AModelWithoutMessagesHasOne) {
  EXPECT_THAT(checkpoint_plan(prompt(1000, {}), std::nullopt, 0, 0), ElementsAre(960));
  EXPECT_THAT(checkpoint_plan(prompt(961, {}), std::nullopt, 0, 0), ElementsAre(960));
  EXPECT_THAT(checkpoint_plan(prompt(960, {}), std::nullopt, 0, 0), ElementsAre(896));
}

}  // namespace
}  // namespace lily
