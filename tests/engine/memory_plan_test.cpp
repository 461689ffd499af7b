#include "engine/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lily {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kGb = 1'000'000'000;

MemoryPlan plan_of(std::int64_t sequences, std::int64_t max_seq) {
  return {
      .weights = 19 * kGb, .fixed = kGb / 2, .kv_token = 20480, .sequences = sequences, .max_seq = max_seq};
}

TEST(MemoryPlan, WhatFitsExactlyFits) {
  const MemoryPlan plan = plan_of(2, 4096);
  EXPECT_EQ(plan.total(), 19 * kGb + kGb / 2 + 2 * 4096 * 20480);
  EXPECT_TRUE(check_memory(plan, plan.total()).ok());
  EXPECT_FALSE(check_memory(plan, plan.total() - 1).ok());
}

TEST(MemoryPlan, NamesTheContextThatWouldFit) {
  const auto checked = check_memory(plan_of(2, 131072), 24 * kGb);
  ASSERT_FALSE(checked.ok());
  EXPECT_EQ(checked.error().code, ErrorCode::kExhausted);
  // 4.5 GB for two sequences: 109,863 tokens each, in pages of 256.
  EXPECT_THAT(checked.error().message, HasSubstr("--max-seq 109824 would fit"));
  EXPECT_THAT(checked.error().message, HasSubstr("24.0 GB of memory"));
  EXPECT_TRUE(check_memory(plan_of(2, 109824), 24 * kGb).ok());
  EXPECT_FALSE(check_memory(plan_of(2, 109824 + 256), 24 * kGb).ok());
}

TEST(MemoryPlan, SaysWhenNoContextFits) {
  const auto checked = check_memory(plan_of(1, 4096), 19 * kGb + kGb / 4);
  ASSERT_FALSE(checked.ok());
  EXPECT_THAT(checked.error().message, HasSubstr("no context fits"));
}

TEST(MemoryPlan, WeightsThatDoNotFitStayOnDisk) {
  EXPECT_TRUE(check_memory(plan_of(1, 32768), 16 * kGb).ok());
  EXPECT_FALSE(check_memory(plan_of(1, 131072), 3 * kGb).ok());
}

}  // namespace
}  // namespace lily
