// Decoding's choice of experts by a whole block against prefill's by a warp: the same experts in the same
// order, the lowest first among equals.
#include "backend/cuda/choose_experts.cuh"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

namespace lily::cuda {
namespace {

TEST(ChooseExperts, AgreesByBlockAndByWarp) {
  std::mt19937 random(1);
  for (const int experts : {1, 17, 32, 33, 128, 256, 290, 512}) {
    for (const int k : {1, 2, 7, 8, 16}) {
      if (k > experts) continue;
      for (const int levels : {3, 40, 100'000}) {  // many ties, some, hardly any
        std::uniform_int_distribution<int> level(-levels / 2, levels / 2);
        std::vector<float> logits(static_cast<std::size_t>(experts));
        for (float& x : logits) x = static_cast<float>(level(random)) * 0.01F;
        const auto logit = [&](int i) { return logits[static_cast<std::size_t>(i)]; };
        std::array<Chosen, 32> expected{};
        emulator::run(dim3(1), 32, 0, [&] { expected[threadIdx.x] = choose_experts(logit, experts, k); });
        Choice got{};
        emulator::run(dim3(1), kMaxExperts, 0, [&] { choose_by_block(logit, experts, k, got); });
        for (int i = 0; i < k; ++i) {
          EXPECT_EQ(got.expert[i], expected[static_cast<std::size_t>(i)].expert)
              << i << " of " << k << " of " << experts;
          EXPECT_EQ(got.logit[i], logit(got.expert[i]));
        }
      }
    }
  }
}

}  // namespace
}  // namespace lily::cuda
