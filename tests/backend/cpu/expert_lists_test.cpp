// Which tokens go to which expert, and where an expert's entries begin.
#include "backend/cpu/expert_lists.h"

#include <gtest/gtest.h>

namespace lily::cpu {
namespace {

void expect_entries(const ExpertLists& lists, std::int64_t expert, std::int64_t first,
                    const std::vector<std::int32_t>& tokens, const std::vector<float>& weights) {
  EXPECT_EQ(lists.first(expert), first) << expert;
  ASSERT_EQ(lists.count(expert), std::ssize(tokens)) << expert;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(lists.tokens(first)[i], tokens[i]) << expert;
    EXPECT_EQ(lists.weights(first)[i], weights[i]) << expert;
  }
}

constexpr std::int32_t kChosen[] = {2, 0, 2, 3, 0, 2};  // two each of three rows
constexpr float kWeights[] = {0.1F, 0.2F, 0.3F, 0.4F, 0.5F, 0.6F};

TEST(ExpertLists, KeepTheOrderOfTokens) {
  ExpertLists lists(5, 3, 2, 1);
  lists.build(3, kChosen, kWeights);
  expect_entries(lists, 0, 0, {0, 2}, {0.2F, 0.5F});
  expect_entries(lists, 1, 2, {}, {});
  expect_entries(lists, 2, 2, {0, 1, 2}, {0.1F, 0.3F, 0.6F});
  expect_entries(lists, 3, 5, {1}, {0.4F});
  expect_entries(lists, 4, 6, {}, {});
  EXPECT_EQ(lists.entries(), 6);
  EXPECT_EQ(lists.max_entries(), 6);
}

TEST(ExpertLists, BeginAtTiles) {
  ExpertLists lists(5, 3, 2, 4);
  for (int again = 0; again < 2; ++again) {
    lists.build(3, kChosen, kWeights);
    expect_entries(lists, 0, 0, {0, 2}, {0.2F, 0.5F});
    expect_entries(lists, 2, 4, {0, 1, 2}, {0.1F, 0.3F, 0.6F});
    expect_entries(lists, 3, 8, {1}, {0.4F});
    EXPECT_EQ(lists.count(1) + lists.count(4), 0);
    EXPECT_EQ(lists.entries(), 12);
  }
  EXPECT_GE(lists.max_entries(), 12);
  const std::int32_t apart[] = {0, 1, 2, 3, 4, 0};  // the most tiles there can be
  lists.build(3, apart, kWeights);
  EXPECT_EQ(lists.entries(), 20);
  EXPECT_LE(lists.entries(), lists.max_entries());
}

}  // namespace
}  // namespace lily::cpu
