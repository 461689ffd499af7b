// What a checkpoint holds, what running it costs, and everything that would keep it from loading.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/config.h"
#include "model/kv_type.h"
#include "model/weights.h"

namespace lily {

/// What a sequence of `tokens` costs beside the weights. The recurrent state is f32, the convolution's rows
/// bf16: the least a backend can do with.
struct ContextCost {
  std::int64_t tokens = 0;
  std::int64_t kv_bytes = 0;      ///< of the whole context
  std::int64_t memory_bytes = 0;  ///< weights, state and KV of one sequence
  std::int64_t token_bytes = 0;   ///< read and written to decode one more token
};

struct ModelReport {
  std::string model;
  std::optional<ModelConfig> config;  ///< none if config.json cannot be used; then nothing below it is known
  std::int64_t tensors = 0;           ///< in all shards
  std::int64_t skipped_tensors = 0;   ///< vision tower and MTP: known, not loaded
  std::int64_t skipped_bytes = 0;
  // From here on: known for a model that loads.
  WeightParts stored_bytes;
  WeightParts token_bytes;
  std::int64_t parameters = 0;
  std::int64_t active_parameters = 0;
  std::int64_t state_bytes = 0;  ///< recurrent state and convolution rows of one sequence
  KvType kv_type = KvType::kBf16;
  std::int64_t kv_bytes_per_token = 0;
  std::vector<ContextCost> contexts;  ///< 4K, 32K, 128K as far as the model's own limit, and that
  std::vector<Error> problems;        ///< all that would not load, and why

  [[nodiscard]] bool loads() const { return problems.empty(); }
};

/// `model` as ModelFiles::open takes it; fails only if there is no such directory. Reads headers and small
/// vectors.
Result<ModelReport> inspect_model(const std::string& model, KvType kv_type = KvType::kBf16);

/// The report as text, for a terminal; ends with the problems, one a line.
[[nodiscard]] std::string format_report(const ModelReport& report);

}  // namespace lily
