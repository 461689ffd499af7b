// The race checker finds every seeded bug, and nothing in the correct kernels.
#include "tests/backend/metal/race_checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/backend/metal/device_case.h"

namespace lily {
namespace {

using metal::EmulatedDevice;
using ::testing::AnyOf;
using testing::buffer_of;
using ::testing::HasSubstr;
using testing::race_checker;
using testing::run;

// Who reads what nobody has written yet raced with the writer that comes later.
const auto is_unordered = AnyOf(HasSubstr("race, "), HasSubstr("read of uninitialised memory"));

std::string verdict(const std::string& kernel) {
  EmulatedDevice device({.executor = {.observer = &race_checker()}});
  std::vector<float> values(128);
  for (std::size_t i = 0; i < 128; ++i) values[i] = static_cast<float>(i + 1);
  const auto in = buffer_of(device, values);
  const auto out = buffer_of(device, std::vector<float>(512, 0.0F));
  const auto status =
      run(device, {.kernel = kernel, .buffers = {out.get(), in.get()}, .groups = {4}, .threads = {128}});
  return status.ok() ? "" : status.error().message;
}

TEST(RaceChecker, CorrectKernelsAreClean) {
  for (const char* kernel :
       {"correct", "device_flags_correct", "write_after_read_correct", "simd_barrier_correct"}) {
    EXPECT_EQ(verdict(kernel), "");
  }
}

TEST(RaceChecker, FindsRacesWithinAGroup) {
  EXPECT_THAT(verdict("missing_barrier"), is_unordered);
  EXPECT_THAT(verdict("wrong_flags"),
              HasSubstr("race, read after write: 4-byte read of threadgroup object 0"));
  EXPECT_THAT(verdict("device_flags"), HasSubstr("race, read after write: 4-byte read of buffer 0"));
  EXPECT_THAT(verdict("write_after_read"),
              HasSubstr("race, read after write: 4-byte read of threadgroup object 0"));
  EXPECT_THAT(verdict("two_simd_groups_read"), HasSubstr("race, write after read"));
  EXPECT_THAT(verdict("simd_missing_barrier"), is_unordered);
  EXPECT_THAT(verdict("simd_barrier_too_weak"), is_unordered);
}

TEST(RaceChecker, FindsRacesBetweenGroups) {
  EXPECT_THAT(verdict("sum_across_groups"), HasSubstr("race, "));
}

TEST(RaceChecker, FindsAccessesOutsideOfWhatIsBound) {
  EXPECT_THAT(verdict("read_past_the_end"), HasSubstr("out of bounds"));
  EXPECT_THAT(verdict("write_past_the_end"), HasSubstr("out of bounds"));
  EXPECT_THAT(verdict("read_before_the_start"), HasSubstr("out of bounds"));
  EXPECT_THAT(verdict("past_a_threadgroup_array"), HasSubstr("out of bounds"));
}

TEST(RaceChecker, HoldsABufferToTheSizeItIsBoundWith) {
  EmulatedDevice device({.executor = {.observer = &race_checker()}});
  const auto copy = std::move(device.pipeline("correct", {})).value();
  const auto in = buffer_of(device, std::vector<float>(256, 0.0F));
  const auto out = buffer_of(device, std::vector<float>(512, 0.0F));
  for (const std::size_t size : {128 * sizeof(float), 127 * sizeof(float)}) {
    const auto list = device.begin();
    list->set_pipeline(*copy);
    list->set_buffer(0, *out);
    list->set_buffer(1, *in, 64, size);
    list->dispatch({4}, {128});
    list->submit();
    EXPECT_EQ(list->wait().ok(), size == 128 * sizeof(float));
  }
}

TEST(RaceChecker, FindsUninitialisedAndMisalignedAndConstantMemory) {
  EXPECT_THAT(verdict("uninitialised_threadgroup"), HasSubstr("read of uninitialised memory"));
  EXPECT_THAT(verdict("misaligned"), HasSubstr("misaligned access: 16-byte read of buffer 1"));
}

TEST(RaceChecker, RefusesWritesToParameters) {
  EmulatedDevice device({.executor = {.observer = &race_checker()}});
  const auto pipeline = std::move(device.pipeline("writes_what_is_constant", {})).value();
  const auto out = buffer_of(device, std::vector<float>(512, 0.0F));
  const std::vector<float> in(128);
  const auto list = device.begin();
  list->set_pipeline(*pipeline);
  list->set_buffer(0, *out);
  list->set_bytes(1, in.data(), 512);
  list->dispatch({1}, {128});
  list->submit();
  const auto status = list->wait();
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("write to a constant"));
}

TEST(RaceChecker, NamesTheLineInTheKernel) {
  EXPECT_THAT(verdict("past_a_threadgroup_array"), HasSubstr("at seeded_bugs.metal:"));
}

TEST(RaceChecker, AtomicsOfManyGroupsAreClean) {
  EmulatedDevice device({.executor = {.observer = &race_checker()}});
  const auto counts = buffer_of<std::uint32_t>(device, {0, 0, 0, 0, 0});
  const auto sum = buffer_of<float>(device, {0});
  EXPECT_TRUE(
      run(device, {.kernel = "atomics", .buffers = {counts.get(), sum.get()}, .groups = {5}, .threads = {64}})
          .ok());
}

// a -> b -> c with a barrier of the list between, which `muted` leaves out.
Result<void> run_chain(std::int64_t muted) {
  EmulatedDevice device({.executor = {.observer = &race_checker()}, .muted_barrier = muted});
  const auto copy = std::move(device.pipeline("copy", {})).value();
  const auto a = buffer_of(device, std::vector<float>(64, 1.0F));
  const auto b = buffer_of(device, std::vector<float>(64, 0.0F));
  const auto c = buffer_of(device, std::vector<float>(64, 0.0F));
  const auto list = device.begin();
  list->set_pipeline(*copy);
  list->set_buffer(0, *b);
  list->set_buffer(1, *a);
  list->dispatch({2}, {32});
  list->barrier();
  list->set_buffer(0, *c);
  list->set_buffer(1, *b);
  list->dispatch({2}, {32});
  list->submit();
  return list->wait();
}

TEST(RaceChecker, FindsRacesBetweenDispatchesThatNoBarrierOrders) {
  EXPECT_TRUE(run_chain(0).ok());
  const auto status = run_chain(1);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("kernel copy: race, read after write"));
}

TEST(RaceChecker, SeesABarrierThatATestLeavesOut) {
  std::set<metal::emu::BarrierPlace> reached;
  const auto run_correct = [&](const metal::emu::BarrierPlace* muted) {
    EmulatedDevice device({.executor = {.observer = &race_checker(), .reached = &reached, .muted = muted}});
    const auto in = buffer_of(device, std::vector<float>(128, 1.0F));
    const auto out = buffer_of(device, std::vector<float>(512, 0.0F));
    return run(device,
               {.kernel = "correct", .buffers = {out.get(), in.get()}, .groups = {4}, .threads = {128}});
  };
  ASSERT_TRUE(run_correct(nullptr).ok());
  ASSERT_EQ(reached.size(), 1U);
  const auto place = *reached.begin();
  const auto status = run_correct(&place);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, is_unordered);
}

}  // namespace
}  // namespace lily
