// Which tokens go to which expert, for the rows of one phase.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cpu/buffer.h"

namespace lily::cpu {

class ExpertLists {
 public:
  /// An expert's entries begin at a multiple of `tile`.
  ExpertLists(std::int64_t experts, std::int64_t max_rows, std::int64_t experts_per_token, std::int64_t tile);

  /// `chosen` and `weights` are [rows, experts per token]. Within an expert, tokens keep their order.
  void build(std::int64_t rows, const std::int32_t* chosen, const float* weights);

  /// Entries there may be at most, those that fill up tiles included.
  [[nodiscard]] std::int64_t max_entries() const { return tokens_.size(); }
  /// Entries of all experts, ascending by expert; between two experts there may be unused ones.
  [[nodiscard]] std::int64_t entries() const { return entries_; }
  [[nodiscard]] std::int64_t first(std::int64_t expert) const {
    return first_[static_cast<std::size_t>(expert)];
  }
  [[nodiscard]] std::int64_t count(std::int64_t expert) const {
    return count_[static_cast<std::size_t>(expert)];
  }
  /// The rows, and the weights of the expert for them, from an entry on.
  [[nodiscard]] const std::int32_t* tokens(std::int64_t entry) const { return tokens_.data() + entry; }
  [[nodiscard]] const float* weights(std::int64_t entry) const { return weights_.data() + entry; }

 private:
  std::int64_t experts_per_token_;
  std::int64_t tile_;
  std::int64_t entries_ = 0;
  std::vector<std::int64_t> first_;  // [experts]
  std::vector<std::int64_t> count_;  // [experts]
  Buffer<std::int32_t> tokens_;
  Buffer<float> weights_;
};

/// The `count` largest of n numbers, descending; the lowest index wins a tie. NaNs are never preferred.
void top_k(const float* x, std::int64_t n, std::int64_t count, std::int32_t* out);

}  // namespace lily::cpu
