#include "engine/checkpoint_plan.h"

#include <algorithm>
#include <cstdlib>

#include "model/shapes.h"

namespace lily {
namespace {

// The starts of all messages but the first, and the last token if nothing else starts there.
std::vector<std::int64_t> boundaries(std::span<const TokenId> prompt, std::optional<TokenId> turn_start) {
  std::vector<std::int64_t> found;
  for (std::int64_t i = 1; turn_start && i < std::ssize(prompt); ++i) {
    if (prompt[static_cast<std::size_t>(i)] == *turn_start) found.push_back(i);
  }
  if (found.empty()) found.push_back(std::ssize(prompt) - 1);
  return found;
}

}  // namespace

std::vector<std::int64_t> checkpoint_plan(std::span<const TokenId> prompt, std::optional<TokenId> turn_start,
                                          std::int64_t from, std::int64_t shared) {
  const auto starts = boundaries(prompt, turn_start);
  // The most useful first: what comes later gives way.
  std::vector<std::int64_t> wanted{shared, starts.back(), starts.front()};
  for (std::int64_t end = kCheckpointInterval; end < std::ssize(prompt); end += kCheckpointInterval) {
    const auto after = std::ranges::upper_bound(starts, end);
    const bool has_start = after != starts.begin() && *(after - 1) > end - kCheckpointInterval;
    wanted.push_back(has_start ? *(after - 1) : end);
  }
  std::vector<std::int64_t> plan;
  for (std::int64_t position : wanted) {
    position = position / kPrefillGrid * kPrefillGrid;
    const bool crowded = std::ranges::any_of(
        plan, [&](std::int64_t other) { return std::abs(other - position) < kCheckpointGap; });
    if (position >= from + kCheckpointGap && position < std::ssize(prompt) && !crowded) {
      plan.push_back(position);
    }
  }
  std::ranges::sort(plan);
  return plan;
}

}  // namespace lily
