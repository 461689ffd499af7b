#include "backend/cpu/expert_lists.h"

#include <algorithm>

#include "base/check.h"

namespace lily::cpu {

ExpertLists::ExpertLists(std::int64_t experts, std::int64_t max_rows, std::int64_t experts_per_token)
    : experts_per_token_(experts_per_token),
      offsets_(static_cast<std::size_t>(experts + 1)),
      next_(static_cast<std::size_t>(experts)),
      tokens_(max_rows * experts_per_token),
      weights_(max_rows * experts_per_token) {}

void ExpertLists::build(std::int64_t rows, const std::int32_t* chosen, const float* weights) {
  const std::int64_t entries = rows * experts_per_token_;
  std::ranges::fill(offsets_, 0);
  for (std::int64_t i = 0; i < entries; ++i) ++offsets_[static_cast<std::size_t>(chosen[i]) + 1];
  for (std::size_t e = 0; e < next_.size(); ++e) {
    offsets_[e + 1] += offsets_[e];
    next_[e] = offsets_[e];
  }
  for (std::int64_t i = 0; i < entries; ++i) {
    const std::int64_t entry = next_[static_cast<std::size_t>(chosen[i])]++;
    tokens_[entry] = static_cast<std::int32_t>(i / experts_per_token_);
    weights_[entry] = weights[i];
  }
}

void top_k(const float* x, std::int64_t n, std::int64_t count, std::int32_t* out) {
  LILY_CHECK(count <= n, "{} of {} experts", count, n);
  std::int64_t kept = 0;
  for (std::int32_t i = 0; i < n; ++i) {
    if (kept == count && !(x[i] > x[out[kept - 1]])) continue;
    std::int64_t place = kept < count ? kept++ : kept - 1;
    for (; place > 0 && x[i] > x[out[place - 1]]; --place) out[place] = out[place - 1];
    out[place] = i;
  }
}

}  // namespace lily::cpu
