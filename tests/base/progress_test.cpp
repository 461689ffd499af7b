#include "base/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/units.h"

namespace lily {
namespace {

TEST(Progress, ShowsPartRateAndTimeLeft) {
  const ProgressState state{.label = "eval", .done = 250, .total = 1000, .seconds = 0.5};
  EXPECT_EQ(format_progress(state, 200),
            "eval [######                  ]  25 %  250/1000 tokens  500 tok/s  1.5 s left");
}

TEST(Progress, ShowsBytes) {
  const ProgressState state{.label = "synth",
                            .unit = ProgressUnit::kBytes,
                            .done = 19'500'000'000,
                            .total = 19'500'000'000,
                            .seconds = 50};
  EXPECT_EQ(format_progress(state, 200),
            "synth [########################] 100 %  19.5 GB of 19.5 GB  390 MB/s");
}

TEST(Progress, FitsTheTerminalAndSurvivesOddStates) {
  ProgressState state{.label = "x", .done = 5, .total = 0, .seconds = 0};
  EXPECT_EQ(format_progress(state, 10).size(), 10U);
  EXPECT_EQ(format_progress(state, 0), "");
  state.total = 2;  // more was done than announced
  EXPECT_THAT(format_progress(state, 200), testing::HasSubstr("100 %"));
}

TEST(Units, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1.00 kB");
  EXPECT_EQ(format_bytes(999'999), "1.00 MB");
  EXPECT_EQ(format_bytes(19'508'787'456.0), "19.5 GB");
  EXPECT_EQ(format_bytes(100e6), "100 MB");
}

TEST(Units, Seconds) {
  EXPECT_EQ(format_seconds(0.04), "0.0 s");
  EXPECT_EQ(format_seconds(9.9), "9.9 s");
  EXPECT_EQ(format_seconds(59.7), "1 min 00 s");
  EXPECT_EQ(format_seconds(185), "3 min 05 s");
  EXPECT_EQ(format_seconds(7440), "2 h 04 min");
}

}  // namespace
}  // namespace lily
