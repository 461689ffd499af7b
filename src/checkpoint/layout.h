// The tensors of a checkpoint in the published MLX layout: which there are, in which order the converter
// emits them, how they fall into shards, and the text of shard headers and index.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/safetensors.h"

namespace lily {

/// A tensor to be written.
struct TensorPlan {
  std::string name;
  DType dtype = DType::kU8;
  std::vector<std::int64_t> shape;

  [[nodiscard]] std::int64_t bytes() const;
};

using ShardPlan = std::vector<TensorPlan>;

/// Every text tensor of a quantized `config`, in conversion order. Bits and group size as config.quantization
/// says.
[[nodiscard]] std::vector<TensorPlan> published_layout(const ModelConfig& config);

inline constexpr std::int64_t kPublishedShardBytes = std::int64_t{5} << 30U;

/// Cuts as the converter does: a tensor that would take its shard past `shard_bytes` begins the next one.
/// `leading_bytes` are what the first shard held before (the published one begins with the vision tower).
[[nodiscard]] std::vector<ShardPlan> cut_into_shards(std::vector<TensorPlan> tensors,
                                                     std::int64_t leading_bytes,
                                                     std::int64_t shard_bytes = kPublishedShardBytes);

/// Of all tensors, without headers.
[[nodiscard]] std::int64_t data_bytes(std::span<const ShardPlan> shards);

/// What comes before the data of a file with these tensors in this order: length prefix and JSON, unpadded,
/// as MLX writes it, so that data is aligned to nothing.
[[nodiscard]] std::string safetensors_header(std::span<const TensorPlan> tensors);

/// The text of model.safetensors.index.json.
[[nodiscard]] std::string shard_index(std::span<const ShardPlan> shards);

}  // namespace lily
