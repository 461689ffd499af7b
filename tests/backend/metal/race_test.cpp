// The backend's kernels under the race checker: clean as they are, and not without any one of their barriers,
// the kernels' own and those that the host puts between dispatches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "backend/metal/emulated_device.h"
#include "tests/backend/metal/kernel_cases.h"
#include "tests/backend/metal/race_checker.h"

namespace lily {
namespace {

using metal::EmulatedDevice;
using metal::EmulatedOptions;
using metal::emu::BarrierPlace;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::kernel_cases;
using testing::KernelCase;
using testing::race_checker;

EmulatedOptions checked() {
  return {.executor = {.observer = &race_checker()}};
}

std::string run(const KernelCase& c, const EmulatedOptions& options) {
  const auto status = c.run(std::make_unique<EmulatedDevice>(options));
  return status.ok() ? "" : status.error().message;
}

// Who reads what nobody has written yet raced with the writer that comes later.
const auto is_unordered = AnyOf(HasSubstr("race, "), HasSubstr("read of uninitialised memory"));

TEST(MetalRaces, EveryCaseIsClean) {
  for (const KernelCase& c : kernel_cases()) EXPECT_EQ(run(c, checked()), "") << c.name;
}

/// Barriers of the kernels' sources, a line each.
std::set<BarrierPlace> barriers_in_sources() {
  std::set<BarrierPlace> found;
  for (const auto& entry :
       std::filesystem::directory_iterator(LILY_SOURCE_DIR "/src/backend/metal/kernels")) {
    std::ifstream file(entry.path());
    std::string line;
    for (unsigned number = 1; std::getline(file, line); ++number) {
      if (line.find("_barrier(mem_flags") != std::string::npos)
        found.emplace(entry.path().filename(), number);
    }
  }
  return found;
}

TEST(MetalRaces, EveryBarrierOfTheKernelsIsReachedAndNeeded) {
  const auto cases = kernel_cases();
  std::map<BarrierPlace, std::vector<const KernelCase*>> reached_by;
  for (const KernelCase& c : cases) {
    std::set<BarrierPlace> reached;
    EmulatedOptions options = checked();
    options.executor.reached = &reached;
    ASSERT_EQ(run(c, options), "") << c.name;
    for (const BarrierPlace& place : reached) reached_by[place].push_back(&c);
  }
  for (const BarrierPlace& place : barriers_in_sources()) {
    EXPECT_TRUE(reached_by.contains(place)) << place.first << ':' << place.second << " is reached by no case";
  }
  for (const auto& [place, by] : reached_by) {
    std::string verdict;
    for (std::size_t i = 0; i < by.size() && verdict.empty(); ++i) {
      EmulatedOptions options = checked();
      options.executor.muted = &place;
      verdict = run(*by[i], options);
    }
    EXPECT_THAT(verdict, is_unordered) << "without the barrier of " << place.first << ':' << place.second;
  }
}

TEST(MetalRaces, EveryBarrierBetweenDispatchesIsNeeded) {
  const auto cases = kernel_cases();
  for (const KernelCase& c : std::span(cases).first(2)) {  // decoding, and a prompt
    std::int64_t barriers = 0;
    EmulatedOptions options = checked();
    options.barriers = &barriers;
    ASSERT_EQ(run(c, options), "") << c.name;
    ASSERT_GT(barriers, 10);
    for (std::int64_t muted = 1; muted <= barriers; ++muted) {
      options = checked();
      options.muted_barrier = muted;
      EXPECT_THAT(run(c, options), is_unordered)
          << c.name << " without barrier " << muted << " of " << barriers;
    }
  }
}

}  // namespace
}  // namespace lily
