#include "backend/metal/level_planner.h"

#include <algorithm>

namespace lily::metal {
namespace {

bool conflict(const Access& a, const Access& b) {
  if (a.kind == b.kind && a.kind != AccessKind::kWrite) return false;
  return a.buffer == b.buffer && a.begin < b.end && b.begin < a.end;
}

}  // namespace

bool LevelPlanner::add(std::span<const Access> accesses) {
  const bool hazard = std::ranges::any_of(accesses, [this](const Access& a) {
    return std::ranges::any_of(level_, [&a](const Access& b) { return conflict(a, b); });
  });
  if (hazard || level_.empty()) ++levels_;
  if (hazard) level_.clear();
  level_.insert(level_.end(), accesses.begin(), accesses.end());
  return hazard;
}

void LevelPlanner::end() {
  level_.clear();
}

}  // namespace lily::metal
