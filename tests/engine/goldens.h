// The reference checkpoints and their golden outputs (logits, hidden states, greedy continuations by
// transformers in f32), read for comparison.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/mmap.h"
#include "base/types.h"
#include "checkpoint/safetensors.h"
#include "engine/loaded_model.h"

namespace lily::testing {

/// ../shared/reference/`name`, or the folder that LILY_REFERENCE names.
std::string reference_path(const std::string& name);

class Goldens {
 public:
  explicit Goldens(const std::string& name);
  [[nodiscard]] std::vector<TokenId> tokens(int length) const {
    return ids("tokens_" + std::to_string(length));
  }
  [[nodiscard]] std::vector<TokenId> greedy(int length) const {
    return ids("greedy_" + std::to_string(length));
  }
  /// [min(length, 200), vocab]: the last rows.
  [[nodiscard]] std::vector<float> logits(int length) const {
    return floats("logits_" + std::to_string(length));
  }
  /// The residual stream [65, hidden]: 0 the embedding, i the output of layer i - 1.
  [[nodiscard]] std::vector<float> hidden(int index) const {
    return floats("hidden_65_" + std::to_string(index));
  }

 private:
  [[nodiscard]] std::vector<TokenId> ids(const std::string& name) const;
  [[nodiscard]] std::vector<float> floats(const std::string& name) const;
  MappedFile file_;
  std::map<std::string, TensorView> tensors_;
};

/// How far two sets of logits are apart, row by row.
struct Agreement {
  double max_abs = 0;
  double mean_kl = 0;  ///< KL(expected || actual), nats
  double top1 = 0;     ///< fraction of rows with the same arg-max
};
Agreement compare(std::span<const float> expected, std::span<const float> actual, std::size_t vocab);

/// All logits [tokens, vocab] of `tokens`, read in steps of `chunk` rows (0: the model's own).
std::vector<float> logits_of(LoadedModel& model, std::span<const TokenId> tokens, std::int64_t chunk);

}  // namespace lily::testing
