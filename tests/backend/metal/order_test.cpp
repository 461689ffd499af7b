// What may happen in another order on a GPU must not change a bit: lanes, SIMD-groups, threadgroups,
// dispatches of one level, and when the device gets to a submitted list at all.
#include <gtest/gtest.h>

#include "backend/metal/emulated_device.h"
#include "tests/backend/metal/kernel_cases.h"

namespace lily {
namespace {

using metal::EmulatedDevice;
using metal::EmulatedOptions;

TEST(MetalOrder, NoOrderChangesABit) {
  for (const testing::KernelCase& c : testing::kernel_cases()) {
    const auto expected = c.run(std::make_unique<EmulatedDevice>(EmulatedOptions{}));
    ASSERT_TRUE(expected.ok()) << c.name << ": " << expected.error().message;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      const auto got = c.run(std::make_unique<EmulatedDevice>(EmulatedOptions{
          .executor = {.threads = 2, .random_order = true, .seed = seed}, .late = true, .shuffled = true}));
      ASSERT_TRUE(got.ok()) << c.name << ": " << got.error().message;
      EXPECT_EQ(*got, *expected) << c.name << ", seed " << seed;
    }
  }
}

}  // namespace
}  // namespace lily
