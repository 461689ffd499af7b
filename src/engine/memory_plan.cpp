#include "engine/memory_plan.h"

#include <fmt/format.h>

#include "base/units.h"
#include "model/shapes.h"

namespace lily {
namespace {

std::string shown(std::int64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

}  // namespace

std::string describe(const MemoryPlan& plan) {
  return fmt::format("{} of weights, {} of K/V ({} x {} tokens), {} of states and buffers",
                     shown(plan.weights), shown(plan.kv()), plan.sequences, plan.max_seq, shown(plan.fixed));
}

Result<void> check_memory(const MemoryPlan& plan, std::int64_t available) {
  const std::int64_t weights = plan.weights < available ? plan.weights : 0;
  if (weights + plan.fixed + plan.kv() <= available) return {};
  const std::int64_t room = available - weights - plan.fixed;
  const std::int64_t pages = room / (plan.kv_token * plan.sequences * kKvPageTokens);
  const std::string advice =
      pages > 0
          ? fmt::format("{} {} would fit", plan.pooled ? "--kv-tokens" : "--max-seq", pages * kKvPageTokens)
          : std::string("no context fits; fewer --slots or a smaller --chunk take less");
  return fail(ErrorCode::kExhausted, "the model would take {} ({}), this machine has {} of memory: {}",
              shown(plan.total()), describe(plan), shown(available), advice);
}

}  // namespace lily
