// How fast this machine multiplies: the bound of reading prompts, where every weight meets many tokens.
#pragma once

#include "backend/cpu/kernels.h"
#include "base/threads.h"

namespace lily::cpu {

/// Multiply-adds a second of all the pool's threads on registers alone: the best of some passes, of which the
/// first also wakes the cores.
[[nodiscard]] double measure_multiply_rate(Multiplied (*multiply)(std::int64_t rounds), ThreadPool& pool);

}  // namespace lily::cpu
