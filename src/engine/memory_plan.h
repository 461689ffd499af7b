// What a loaded model will take of this machine's memory, judged before it is taken.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace lily {

struct MemoryPlan {
  std::int64_t weights = 0;    ///< bytes of the mapped checkpoint that are used
  std::int64_t fixed = 0;      ///< bytes of recurrent states and buffers
  std::int64_t kv_token = 0;   ///< bytes of K/V a token
  std::int64_t sequences = 1;  ///< that run at once
  std::int64_t max_seq = 0;    ///< tokens of each
  bool pooled = false;         ///< --kv-tokens bounds all together: `max_seq` is that, of one `sequences`

  [[nodiscard]] std::int64_t kv() const { return kv_token * sequences * max_seq; }
  /// Most that will be resident, with every sequence full.
  [[nodiscard]] std::int64_t total() const { return weights + fixed + kv(); }
};

/// "19.5 GB of weights, 0.7 GB of K/V (1 x 32768 tokens), 0.2 GB of states and buffers"
[[nodiscard]] std::string describe(const MemoryPlan& plan);

/// kExhausted when the plan is larger than `available` bytes, with the --max-seq that would fit. Weights that
/// do not fit by themselves are no error: the system reads them from disk again and again, so what has to fit
/// then is the rest.
Result<void> check_memory(const MemoryPlan& plan, std::int64_t available);

}  // namespace lily
