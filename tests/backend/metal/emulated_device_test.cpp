// Command lists, memory and pipelines of the emulated device.
#include "backend/metal/emulated_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/backend/metal/device_case.h"

namespace lily {
namespace {

using metal::EmulatedDevice;
using testing::buffer_of;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::values_of;

/// a -> b -> c, one more each time.
std::unique_ptr<metal::CommandList> chain(EmulatedDevice& device, const metal::GpuPipeline& copy,
                                          const std::vector<const metal::GpuBuffer*>& buffers) {
  auto list = device.begin();
  list->set_pipeline(copy);
  for (std::size_t i = 0; i + 1 < buffers.size(); ++i) {
    list->set_buffer(0, *buffers[i + 1]);
    list->set_buffer(1, *buffers[i]);
    list->dispatch({2}, {32});
    list->barrier();
  }
  return list;
}

TEST(EmulatedDevice, RunsListsInTheOrderOfTheirSubmission) {
  for (const bool late : {false, true}) {
    EmulatedDevice device({.late = late});
    const auto copy = std::move(device.pipeline("copy", {})).value();
    const auto a = buffer_of(device, std::vector<float>(64, 1.0F));
    const auto b = buffer_of(device, std::vector<float>(64, 0.0F));
    const auto first = chain(device, *copy, {a.get(), b.get(), a.get()});
    const auto second = chain(device, *copy, {a.get(), b.get()});
    first->submit();
    second->submit();
    EXPECT_THAT(values_of<float>(*b), Each(late ? 0.0F : 4.0F));
    ASSERT_TRUE(second->wait().ok());
    EXPECT_THAT(values_of<float>(*b), Each(4.0F));
    EXPECT_TRUE(first->wait().ok());
  }
}

TEST(EmulatedDevice, ShufflesWhatNoBarrierOrders) {
  bool differs = false;
  for (std::uint64_t seed = 1; seed < 8; ++seed) {
    EmulatedDevice device({.executor = {.seed = seed}, .shuffled = true, .muted_barrier = 1});
    const auto copy = std::move(device.pipeline("copy", {})).value();
    const auto a = buffer_of(device, std::vector<float>(64, 1.0F));
    const auto b = buffer_of(device, std::vector<float>(64, 0.0F));
    const auto c = buffer_of(device, std::vector<float>(64, 0.0F));
    const auto list = chain(device, *copy, {a.get(), b.get(), c.get()});
    list->submit();
    ASSERT_TRUE(list->wait().ok());
    differs |= values_of<float>(*c)[0] != 3.0F;
  }
  EXPECT_TRUE(differs);
}

TEST(EmulatedDevice, KeepsParametersAsTheyWereSet) {
  EmulatedDevice device({.late = true});
  const auto pipeline = std::move(device.pipeline("copy", {})).value();
  const auto out = buffer_of(device, std::vector<float>(32, 0.0F));
  std::vector<float> in(32, 5.0F);
  const auto list = device.begin();
  list->set_pipeline(*pipeline);
  list->set_buffer(0, *out);
  list->set_bytes(1, in.data(), in.size() * sizeof(float));
  list->dispatch({1}, {32});
  in.assign(32, 9.0F);
  list->submit();
  ASSERT_TRUE(list->wait().ok());
  EXPECT_THAT(values_of<float>(*out), Each(6.0F));
}

TEST(EmulatedDevice, FreshMemoryIsNoNumber) {
  EmulatedDevice device({});
  const auto buffer = std::move(device.allocate(64, "a test")).value();
  for (const float f : values_of<float>(*buffer)) EXPECT_TRUE(std::isnan(f));
}

TEST(EmulatedDevice, RefusesMoreThanTheWorkingSet) {
  const metal::DeviceFacts facts = {.name = "M0", .working_set_bytes = 1000, .max_buffer_bytes = 800};
  EXPECT_TRUE(metal::check_working_set(facts, 200, 800, "weights").ok());
  const auto beside = metal::check_working_set(facts, 300, 800, "weights");
  ASSERT_FALSE(beside.ok());
  EXPECT_EQ(beside.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(beside.error().message,
            "M0: 800 B of weights beside 300 B, the system recommends at most 1.00 kB");
  const auto alone = metal::check_working_set(facts, 0, 801, "weights");
  ASSERT_FALSE(alone.ok());
  EXPECT_EQ(alone.error().message, "M0: 801 B of weights, a buffer has at most 800 B");

  EmulatedDevice device({});
  const auto much = device.allocate(static_cast<std::size_t>(device.facts().max_buffer_bytes) + 1, "weights");
  ASSERT_FALSE(much.ok());
  EXPECT_EQ(much.error().code, ErrorCode::kExhausted);
}

TEST(EmulatedDevice, NamesAKernelThatIsMissing) {
  EmulatedDevice device({});
  const auto none = device.pipeline("no_such_kernel", {});
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, HasSubstr("no kernel 'no_such_kernel'"));
}

}  // namespace
}  // namespace lily
