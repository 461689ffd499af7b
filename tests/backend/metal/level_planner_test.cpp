#include "backend/metal/level_planner.h"

#include <gtest/gtest.h>

namespace lily::metal {
namespace {

constexpr int kOne = 0;
constexpr int kOther = 0;

Access read(const int& buffer, std::int64_t begin, std::int64_t end) {
  return {.buffer = &buffer, .begin = begin, .end = end, .kind = AccessKind::kRead};
}
Access write(const int& buffer, std::int64_t begin, std::int64_t end) {
  return {.buffer = &buffer, .begin = begin, .end = end, .kind = AccessKind::kWrite};
}

bool add(LevelPlanner& planner, std::vector<Access> accesses) {
  return planner.add(accesses);
}

TEST(LevelPlanner, DispatchesThatOnlyReadTheSameShareALevel) {
  LevelPlanner planner;
  EXPECT_FALSE(add(planner, {read(kOne, 0, 8), write(kOne, 8, 16)}));
  EXPECT_FALSE(add(planner, {read(kOne, 0, 8), write(kOne, 16, 24)}));
  EXPECT_FALSE(add(planner, {read(kOther, 0, 24), write(kOther, 24, 32)}));
  EXPECT_EQ(planner.levels(), 1);
}

TEST(LevelPlanner, EveryHazardOpensALevel) {
  LevelPlanner planner;
  EXPECT_FALSE(add(planner, {write(kOne, 0, 8)}));
  EXPECT_TRUE(add(planner, {read(kOne, 7, 9)}));    // read after write
  EXPECT_TRUE(add(planner, {write(kOne, 8, 10)}));  // write after read
  EXPECT_TRUE(add(planner, {write(kOne, 9, 12)}));  // write after write
  EXPECT_EQ(planner.levels(), 4);
}

TEST(LevelPlanner, AHazardIsMetOnce) {
  LevelPlanner planner;
  EXPECT_FALSE(add(planner, {write(kOne, 0, 8)}));
  EXPECT_TRUE(add(planner, {read(kOne, 0, 8)}));
  EXPECT_FALSE(add(planner, {read(kOne, 0, 8)}));
  EXPECT_EQ(planner.levels(), 2);
}

TEST(LevelPlanner, BytesSideBySideAreNoHazard) {
  LevelPlanner planner;
  EXPECT_FALSE(add(planner, {write(kOne, 0, 8)}));
  EXPECT_FALSE(add(planner, {read(kOne, 8, 16)}));
}

TEST(LevelPlanner, PartsOfOneOutputShareALevel) {
  const auto part = [](std::int64_t begin, std::int64_t end) {
    return Access{.buffer = &kOne, .begin = begin, .end = end, .kind = AccessKind::kWritePart};
  };
  LevelPlanner planner;
  EXPECT_FALSE(add(planner, {part(0, 24)}));
  EXPECT_FALSE(add(planner, {part(8, 24)}));
  EXPECT_TRUE(add(planner, {read(kOne, 0, 8)}));
  EXPECT_TRUE(add(planner, {part(0, 24)}));
  EXPECT_TRUE(add(planner, {write(kOne, 0, 24)}));
}

TEST(LevelPlanner, ListsOrderThemselves) {
  LevelPlanner planner;
  EXPECT_FALSE(add(planner, {write(kOne, 0, 8)}));
  planner.end();
  EXPECT_FALSE(add(planner, {read(kOne, 0, 8)}));
  EXPECT_EQ(planner.levels(), 2);
}

}  // namespace
}  // namespace lily::metal
