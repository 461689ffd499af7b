#include "base/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <numeric>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace lily {
namespace {

TEST(AvailableCores, IsAtLeastOneAndNotMoreThanTheMachineHas) {
  EXPECT_GE(available_cores(), 1);
  EXPECT_LE(available_cores(), static_cast<int>(std::thread::hardware_concurrency()));
}

class ThreadPoolTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 5));

TEST_P(ThreadPoolTest, RunsTheBodyOnceOnEveryThread) {
  ThreadPool pool(GetParam());
  std::vector<int> calls(static_cast<std::size_t>(pool.size()));
  pool.run([&](int thread) { ++calls[static_cast<std::size_t>(thread)]; });
  EXPECT_EQ(calls, std::vector<int>(static_cast<std::size_t>(GetParam()), 1));
}

TEST_P(ThreadPoolTest, ParallelForCoversEveryIndexOnceAndCutsAtGrains) {
  ThreadPool pool(GetParam());
  for (const std::int64_t count : {0, 1, 15, 16, 17, 100, 4097}) {
    std::vector<int> visits(static_cast<std::size_t>(count));
    pool.parallel_for(count, 16, [&](std::int64_t begin, std::int64_t end, int) {
      EXPECT_EQ(begin % 16, 0);
      EXPECT_TRUE(end % 16 == 0 || end == count);
      for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
    });
    EXPECT_EQ(visits, std::vector<int>(static_cast<std::size_t>(count), 1));
  }
}

// A thread that is held up must not hold up the others: they take what is left.
TEST(ThreadPool, ParallelForGoesOnAroundASlowThread) {
  ThreadPool pool(2);
  std::atomic<std::int64_t> others{0};
  std::atomic<bool> held{false};
  pool.parallel_for(1000, 1, [&](std::int64_t begin, std::int64_t end, int) {
    if (!held.exchange(true)) {
      while (others.load() < 1000 - (end - begin)) std::this_thread::yield();
    } else {
      others += end - begin;
    }
  });
  EXPECT_GE(others.load(), 500);
}

TEST(ThreadPool, PinnedWorkersDoTheSame) {
  ThreadPool pool(3, true);
  std::vector<int> visits(100);
  pool.parallel_tasks(100, [&](std::int64_t task, int) { ++visits[static_cast<std::size_t>(task)]; });
  EXPECT_EQ(visits, std::vector<int>(100, 1));
}

TEST_P(ThreadPoolTest, ParallelTasksRunsEveryTaskOnce) {
  ThreadPool pool(GetParam());
  std::vector<int> visits(1000);
  pool.parallel_tasks(1000, [&](std::int64_t task, int thread) {
    EXPECT_LT(thread, pool.size());
    ++visits[static_cast<std::size_t>(task)];
  });
  EXPECT_EQ(visits, std::vector<int>(1000, 1));
}

TEST_P(ThreadPoolTest, WritesOfOneRegionAreSeenByTheNext) {
  ThreadPool pool(GetParam());
  std::vector<std::int64_t> values(64, 1);
  for (int round = 0; round < 2000; ++round) {
    const std::int64_t first = values[0];
    pool.parallel_for(64, 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) values[static_cast<std::size_t>(i)] = first + 1;
    });
  }
  EXPECT_EQ(values, std::vector<std::int64_t>(64, 2001));
}

TEST(ThreadPool, WakesWorkersThatWentToSleep) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::vector<int> calls(3);
    pool.run([&](int thread) { ++calls[static_cast<std::size_t>(thread)]; });
    EXPECT_EQ(calls, std::vector<int>(3, 1));
  }
}

// Spinning costs processor time, sleeping none: 300 ms of idling must not cost the process 100 ms.
TEST(ThreadPool, IdlingTakesNoProcessorTime) {
  ThreadPool pool(2);
  pool.run([](int) {});
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const double busy_seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(busy_seconds, 0.1);
}

}  // namespace
}  // namespace lily
