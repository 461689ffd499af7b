// An original checkpoint to a quantised one in the published MLX layout.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/affine_quantizer.h"
#include "checkpoint/config.h"
#include "checkpoint/layout.h"
#include "checkpoint/write_status.h"

namespace lily {

/// Modules whose path holds `pattern` (a shell pattern) get `spec`.
struct QuantizeRule {
  std::string pattern;
  QuantizationSpec spec;
};

/// "v_proj=6,layers.[0-4].*down_proj=6:32": bits, and a group size where it is not `defaults`'.
Result<std::vector<QuantizeRule>> parse_quantize_rules(std::string_view text,
                                                       const QuantizationSpec& defaults);

struct QuantizeOptions {
  std::string source;         ///< a directory as its publisher made it: bf16, Hugging Face names
  std::filesystem::path out;  ///< must not exist, or be an empty directory
  QuantizationSpec quantization;
  /// The last one that matches counts. Routers and shared experts' gates have 8 bits in groups of 64 unless a
  /// rule says otherwise: as published.
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
