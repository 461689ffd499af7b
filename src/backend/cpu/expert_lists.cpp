#include "backend/cpu/expert_lists.h"

#include <algorithm>

#include "base/check.h"

namespace lily::cpu {

ExpertLists::ExpertLists(std::int64_t experts, std::int64_t max_rows, std::int64_t experts_per_token,
                         std::int64_t tile)
    : experts_per_token_(experts_per_token),
      tile_(tile),
      first_(static_cast<std::size_t>(experts)),
      count_(static_cast<std::size_t>(experts)) {
  const std::int64_t chosen = max_rows * experts_per_token;
  const std::int64_t most = chosen + std::min(experts, chosen) * (tile - 1);
  tokens_ = Buffer<std::int32_t>(most);
  weights_ = Buffer<float>(most);
}

void ExpertLists::build(std::int64_t rows, const std::int32_t* chosen, const float* weights) {
  const std::int64_t choices = rows * experts_per_token_;
  std::ranges::fill(count_, 0);
  for (std::int64_t i = 0; i < choices; ++i) ++count_[static_cast<std::size_t>(chosen[i])];
  entries_ = 0;
  for (std::size_t e = 0; e < count_.size(); ++e) {
    first_[e] = entries_;
    entries_ += (count_[e] + tile_ - 1) / tile_ * tile_;
    count_[e] = 0;
  }
  for (std::int64_t i = 0; i < choices; ++i) {
    const auto expert = static_cast<std::size_t>(chosen[i]);
    const std::int64_t entry = first_[expert] + count_[expert]++;
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
