// The executor against what Metal promises, by kernels whose answers are known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tests/backend/metal/device_case.h"

namespace lily {
namespace {

using metal::EmulatedDevice;
using metal::EmulatedOptions;
using testing::buffer_of;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::run;
using testing::values_of;

std::vector<float> zeros(std::size_t count) {
  return std::vector<float>(count, 0.0F);
}

TEST(MetalExecutor, VectorsPackedTypesAndBits) {
  EmulatedDevice device({});
  const auto out = buffer_of(device, zeros(10));
  const auto packed = buffer_of<float>(device, {0, 0, 0, 3, 4, 5});
  std::vector<std::uint8_t> block(18, 0);
  block[0] = 0x00;
  block[1] = 0x38;  // half 0.5
  block[3] = 0x90;  // code 3 is 9
  const auto codes = buffer_of(device, block);
  ASSERT_TRUE(run(device, {.kernel = "vectors", .buffers = {out.get(), packed.get(), codes.get()}}).ok());
  EXPECT_THAT(values_of<float>(*out),
              ElementsAre(4, 3, 4 + 3 + 7 + 8, 4.5F, 2.5F, 15360, 3 + 4 + 31, 100, 1, 3));
}

TEST(MetalExecutor, FunctionConstantsAndParameters) {
  EmulatedDevice device({});
  const auto out = buffer_of(device, zeros(4));
  const auto pipeline = device.pipeline("constants", std::vector<metal::FunctionConstant>{{1, 21U}});
  const auto list = device.begin();
  list->set_pipeline(**pipeline);
  list->set_buffer(0, *out);
  struct {
    std::uint32_t count = 3;
    float scale = 0.5F;
  } parameters;
  list->set_value(1, parameters);
  list->dispatch({}, {});
  list->submit();
  ASSERT_TRUE(list->wait().ok());
  EXPECT_THAT(values_of<float>(*out), ElementsAre(21, 42, 0, 1.5F));
}

TEST(MetalExecutor, NamesAFunctionConstantThatIsNotSet) {
  EmulatedDevice device({});
  const auto out = buffer_of(device, zeros(4));
  const auto status = run(device, {.kernel = "constants", .buffers = {out.get(), out.get()}});
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("function constant 1, FC_count, is used and not set"));
}

TEST(MetalExecutor, RoundsHalfAndBfloatOperationsAndFlushesFloatSubnormals) {
  EmulatedDevice device({});
  const auto out = buffer_of(device, zeros(8));
  const float smallest_half = std::ldexp(1.0F, -24);
  const auto in =
      buffer_of<float>(device, {1.0F, 0.0003F, 1.00390625F, 0.00390625F, 1e-38F, 1e-3F, smallest_half, 1.0F});
  ASSERT_TRUE(run(device, {.kernel = "rounding", .buffers = {out.get(), in.get()}}).ok());
  const auto got = values_of<float>(*out);
  EXPECT_EQ(got[0], 0.0F) << "half: 1 + 0.0003 is 1";
  EXPECT_EQ(got[1], 1.0F) << "bfloat: halfway rounds to even";
  EXPECT_EQ(got[2], 1.0F) << "bfloat: the sum is rounded";
  EXPECT_EQ(got[3], 0.0F) << "a subnormal product is flushed";
  EXPECT_EQ(got[4], 0.0F) << "a subnormal operand is flushed";
  EXPECT_EQ(got[5], smallest_half) << "subnormal halves are kept";
  EXPECT_EQ(got[6], smallest_half);
  EXPECT_EQ(got[7], 0.1F) << "a literal without suffix is single precision";
}

TEST(MetalExecutor, SimdFunctionsOfAFullAndAPartialGroup) {
  EmulatedDevice device({});
  const auto out = buffer_of(device, zeros(40 * 12));  // 40 threads: 32 lanes, then 8
  ASSERT_TRUE(run(device, {.kernel = "simd_functions", .buffers = {out.get()}, .threads = {40}}).ok());
  const auto got = values_of<float>(*out);
  const auto lane = [&](std::size_t i) {
    return std::vector(got.begin() + 12 * i, got.begin() + 12 * (i + 1));
  };
  EXPECT_THAT(lane(3), ElementsAre(496, 31, 1, 2, 5, 3, 10, 6, 1, 0, 1, 28));
  EXPECT_THAT(lane(31), ElementsAre(496, 31, 1, 30, 31, 465, 10, 118, 1, 0, 1, 0));
  const auto partial = lane(32 + 5);
  EXPECT_EQ(partial[0], 28.0F);
  EXPECT_EQ(partial[1], 7.0F);
  EXPECT_EQ(partial[9], 1.0F);
  EXPECT_TRUE(std::isnan(partial[11])) << "a lane that does not exist is undefined";
}

TEST(MetalExecutor, MatricesLoadTransposeMultiplyAndStore) {
  EmulatedDevice device({});
  std::vector<std::uint16_t> a(8 * 16, 0);
  for (unsigned i = 0; i < 8; ++i) a[i * 16 + 8 + i] = i == 2 ? 0x4000 : 0x3c00;  // diagonal of 1, one 2
  std::vector<float> b(64);
  for (unsigned i = 0; i < 64; ++i) b[i] = static_cast<float>(i);
  const auto out = buffer_of(device, zeros(64));
  const auto left = buffer_of(device, a);
  const auto right = buffer_of(device, b);
  ASSERT_TRUE(
      run(device, {.kernel = "matrices", .buffers = {out.get(), left.get(), right.get()}, .threads = {32}})
          .ok());
  const auto got = values_of<float>(*out);
  for (unsigned row = 0; row < 8; ++row) {
    for (unsigned column = 0; column < 8; ++column) {
      const float transposed = b[column * 8 + row];
      EXPECT_EQ(got[row * 8 + column], 1 + (row == 2 ? 2 : 1) * transposed) << row << ' ' << column;
    }
  }
}

TEST(MetalExecutor, AtomicsOfManyGroups) {
  EmulatedDevice device({.executor = {.threads = 2}});
  const auto counts = buffer_of<std::uint32_t>(device, {0, 0, 0, 0, 0});
  const auto sum = buffer_of<float>(device, {0});
  ASSERT_TRUE(
      run(device,
          {.kernel = "atomics", .buffers = {counts.get(), sum.get()}, .groups = {50}, .threads = {64}})
          .ok());
  EXPECT_THAT(values_of<std::uint32_t>(*counts), ElementsAre(800, 800, 800, 800, 3199));
  EXPECT_THAT(values_of<float>(*sum), ElementsAre(1600));
}

TEST(MetalExecutor, PositionsOfAThreeDimensionalGrid) {
  EmulatedDevice device({});
  const auto out = buffer_of(device, std::vector<std::uint32_t>(2 * 8 * 3 * 5 * 2));
  ASSERT_TRUE(
      run(device, {.kernel = "positions", .buffers = {out.get()}, .groups = {2, 3, 2}, .threads = {8, 5, 1}})
          .ok());
  const auto got = values_of<std::uint32_t>(*out);
  const std::size_t z = 1;
  const std::size_t y = 2 * 5 + 4;
  const std::size_t x = 8 + 3;
  EXPECT_EQ(got[(z * 15 + y) * 16 + x],
            35U + 1000 * (1 + 2 * 2 + 4) + 100000 * 1 + 1000000 * 2 + 10000000U * 5);
}

TEST(MetalExecutor, ThreadgroupMemoryOfASetLength) {
  EmulatedDevice device({});
  const auto out = buffer_of(device, zeros(64));
  ASSERT_TRUE(
      run(device,
          {.kernel = "dynamic_memory", .buffers = {out.get()}, .threads = {64}, .threadgroup_bytes = 256})
          .ok());
  EXPECT_EQ(values_of<float>(*out)[3], 60.0F);
  const auto none = run(device, {.kernel = "dynamic_memory", .buffers = {out.get()}, .threads = {64}});
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, HasSubstr("threadgroup(0) has no length"));
  const auto much =
      run(device,
          {.kernel = "dynamic_memory", .buffers = {out.get()}, .threads = {64}, .threadgroup_bytes = 40000});
  ASSERT_FALSE(much.ok());
  EXPECT_THAT(much.error().message, HasSubstr("40000 bytes of threadgroup memory, the limit is 32768"));
}

TEST(MetalExecutor, ReportsABufferThatIsNotBound) {
  EmulatedDevice device({});
  const auto out = buffer_of(device, zeros(64));
  const auto status = run(device, {.kernel = "copy", .buffers = {out.get()}});
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("kernel copy: buffer(1) is not bound"));
}

// What a wrong kernel shows without the race checker: threads that part ways, always; NaN; answers that
// depend on the order.
struct Shown {
  std::string error;
  bool differs = false;
  bool is_nan = false;
};
Shown run_bug(const std::string& kernel) {
  Shown shown;
  std::vector<float> first;
  for (std::uint64_t seed = 0; seed < 8 && shown.error.empty(); ++seed) {
    EmulatedDevice device({.executor = {.threads = 1, .random_order = seed > 0, .seed = seed}});
    std::vector<float> values(128);
    for (std::size_t i = 0; i < 128; ++i) values[i] = static_cast<float>(i + 1);
    const auto in = buffer_of(device, values);
    const auto out = buffer_of(device, zeros(512));
    const auto status =
        run(device, {.kernel = kernel, .buffers = {out.get(), in.get()}, .groups = {4}, .threads = {128}});
    if (!status.ok()) shown.error = status.error().message;
    const auto got = values_of<float>(*out);
    for (const float f : got) shown.is_nan |= std::isnan(f);
    if (seed == 0) first = got;
    for (std::size_t i = 0; i < got.size(); ++i) {
      shown.differs |= std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(first[i]);
    }
  }
  return shown;
}

TEST(MetalExecutor, CorrectKernelsShowNothing) {
  for (const char* kernel :
       {"correct", "device_flags_correct", "write_after_read_correct", "simd_barrier_correct"}) {
    const Shown shown = run_bug(kernel);
    EXPECT_EQ(shown.error, "") << kernel;
    EXPECT_FALSE(shown.differs || shown.is_nan) << kernel;
  }
}

TEST(MetalExecutor, ReportsThreadsThatPartWays) {
  EXPECT_THAT(run_bug("divergent_barrier").error,
              HasSubstr("64 threads wait in threadgroup_barrier at seeded_bugs.metal:"));
  EXPECT_THAT(run_bug("two_barriers").error,
              HasSubstr("wait in another threadgroup_barrier at seeded_bugs.metal:"));
  EXPECT_THAT(run_bug("early_return").error, HasSubstr("28 threads have returned;"));
  EXPECT_THAT(run_bug("divergent_simd_sum").error, HasSubstr("threads wait in simd_sum"));
  EXPECT_THAT(run_bug("simd_sum_after_return").error, HasSubstr("threads wait in simd_sum"));
}

TEST(MetalExecutor, RandomOrderAndPoisonShowRaces) {
  for (const char* kernel :
       {"missing_barrier", "write_after_read", "simd_missing_barrier", "simd_barrier_too_weak"}) {
    const Shown shown = run_bug(kernel);
    EXPECT_TRUE(shown.differs || shown.is_nan) << kernel;
  }
  EXPECT_TRUE(run_bug("uninitialised_threadgroup").is_nan);
  EXPECT_TRUE(run_bug("uninitialised_thread").is_nan);
}

TEST(MetalExecutor, GivesTheSameBitsInEveryOrder) {
  std::vector<float> first;
  for (std::uint64_t seed = 1; seed < 5; ++seed) {
    EmulatedDevice device({.executor = {.threads = 2, .random_order = true, .seed = seed}});
    const auto out = buffer_of(device, zeros(64 * 12));
    ASSERT_TRUE(run(device, {.kernel = "simd_functions", .buffers = {out.get()}, .threads = {64}}).ok());
    if (seed == 1) first = values_of<float>(*out);
    EXPECT_EQ(values_of<float>(*out), first);
  }
}

}  // namespace
}  // namespace lily
