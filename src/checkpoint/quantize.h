// An original checkpoint to a quantised one in the published MLX layout.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/affine_quantizer.h"
#include "checkpoint/config.h"
#include "checkpoint/layout.h"
#include "checkpoint/quantize_rules.h"
#include "checkpoint/write_status.h"

namespace lily {

struct QuantizeOptions {
  std::string source;         ///< a directory as its publisher made it: bf16, Hugging Face names
  std::filesystem::path out;  ///< must not exist, or be an empty directory
  QuantizationSpec quantization;
  std::vector<QuantizeRule> rules;
  QuantizerRounding rounding = QuantizerRounding::kMetal;
  int threads = 0;                                  ///< 0: all cores
  std::int64_t shard_bytes = kPublishedShardBytes;  ///< at which shards are cut
};

/// Writes into `out`.partial and renames it at the end, so that an interrupted run never looks like a model.
/// A run of the same options goes on after the last shard that was finished. Memory does not grow with the
/// model: the source is mapped, and a megabyte a thread is being written. The vision tower and MTP layers are
/// left out. kExhausted when the disk has not enough room.
Result<void> quantize(const QuantizeOptions& options, const WriteProgress& progress = {});

}  // namespace lily
