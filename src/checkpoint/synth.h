// Synthetic checkpoints: any size of the family in the exact published layout, with random weights that keep
// activations and logits sane. For benchmarks and memory planning where the published weights are not at
// hand.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"
#include "checkpoint/config.h"
#include "checkpoint/write_status.h"

namespace lily {

struct SynthOptions {
  std::filesystem::path out;  ///< must not exist, or be an empty directory
  std::string preset = "qwen3.6-35b-a3b";
  QuantizationSpec quantization;
  std::uint64_t seed = 0;      ///< equal seeds give equal bytes, whatever the threads
  int threads = 0;             ///< 0: all cores
  std::string tokenizer_from;  ///< a checkpoint directory or "tiny" whose text files are copied; empty: none
};

/// Writes the checkpoint into `out`.partial and renames it at the end, so that an interrupted run never looks
/// like a model; on an error or cancellation the partial directory is removed. kExhausted when the disk has
/// not enough room.
Result<void> synthesize(const SynthOptions& options, const WriteProgress& progress = {});

}  // namespace lily
