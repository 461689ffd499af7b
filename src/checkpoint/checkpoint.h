// A checkpoint: its config and every tensor of its shards by name, with a ledger of which were used.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/config.h"
#include "checkpoint/model_files.h"
#include "checkpoint/safetensors.h"

namespace lily {

class Checkpoint {
 public:
  /// Reads config.json, the shard index (or model.safetensors, or a complete numbered set) and all headers;
  /// compares index and headers in both directions. No tensor data is touched. Fails with all that is wrong,
  /// in one message: shards that are missing, headers that lie, tensors that are not where the index says, or
  /// in two shards. A tensor that its shard holds and the index leaves out is loaded with a warning; the
  /// index's total_size is not read.
  static Result<Checkpoint> open(std::shared_ptr<ModelFiles> files);

  /// open() for a report: only a bad config.json fails, every other problem is added to `problems` and left
  /// behind.
  static Result<Checkpoint> open_collecting(std::shared_ptr<ModelFiles> files, std::vector<Error>& problems);

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] ModelFiles& files() const { return *files_; }
  /// For whoever keeps views of tensors: they live as long as this.
  [[nodiscard]] const std::shared_ptr<ModelFiles>& shared_files() const { return files_; }
  /// All tensors, by name.
  [[nodiscard]] const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }

  /// The tensor, marked as used. kNotFound names it.
  Result<TensorView> take(std::string_view name);
  [[nodiscard]] bool contains(std::string_view name) const;

  /// After everything was taken: fails on tensors nobody took, naming them; vision_tower.* and mtp.* are
  /// skipped with one log line.
  Result<void> check_all_taken() const;

 private:
  std::shared_ptr<ModelFiles> files_;
  ModelConfig config_;
  std::map<std::string, TensorView, std::less<>> tensors_;
  std::set<std::string, std::less<>> taken_;
};

/// vision_tower.*, model.visual.*, mtp.*, and the same under "language_model.": known, and not used for text.
[[nodiscard]] bool is_unused_family(std::string_view tensor_name);

}  // namespace lily
