// How fast a model runs: batch 1, greedy, a synthetic prompt, by context length.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/loaded_model.h"

namespace lily {

struct BenchmarkOptions {
  std::vector<std::int64_t> contexts;  ///< prompt lengths
  std::int64_t decode = 64;            ///< timed steps after the prompt
  std::int64_t rounds = 2;  ///< measurements of each length, forwards and backwards through the list
  std::int64_t chunk = 0;   ///< prompt tokens of a step (0: the model's max_rows)
  /// Called between steps with what is being run; returning false ends with kCancelled.
  std::function<bool(const std::string& what)> progress;
};

/// One timed run.
struct BenchmarkRun {
  double prefill_seconds = 0;             ///< until the first token is readable
  std::vector<double> step_seconds = {};  ///< one a decoded token
  std::vector<TokenId> tokens = {};       ///< the first one and the decoded ones

  [[nodiscard]] double decode_seconds() const;
};

/// All runs of one context length.
struct BenchmarkRow {
  std::int64_t context = 0;
  std::vector<BenchmarkRun> runs = {};
  double bytes_per_token = 0;  ///< a decode step has to move, at the middle of the timed steps

  [[nodiscard]] double prefill_seconds() const;  ///< median over the runs
  [[nodiscard]] double decode_seconds() const;   ///< median over the runs, of all timed steps
  [[nodiscard]] double prefill_tokens_per_second() const;
  [[nodiscard]] double decode_tokens_per_second() const;
  [[nodiscard]] double bytes_per_second() const;
  /// Largest over smallest time of a run, minus 1, of prefill or decode, whichever is worse.
  [[nodiscard]] double spread() const;
};

/// Runs every context of `options`, warmed up by an untimed run of the same shape. Timed: a fresh sequence's
/// prompt until its first token is readable, then single steps. Not timed: loading, making the prompt.
/// kInternal if two runs of a length give different tokens.
Result<std::vector<BenchmarkRow>> run_benchmark(LoadedModel& model, const BenchmarkOptions& options);

/// Token i of the synthetic prompt: ((i * 2654435761) mod 2^32) mod vocab.
[[nodiscard]] std::vector<TokenId> benchmark_prompt(std::int64_t length, std::int64_t vocab);

/// Bytes a decode step at `position` has to move: weights read once, recurrent state read and written, K/V
/// rows read.
[[nodiscard]] double decode_bytes(LoadedModel& model, std::int64_t position);

[[nodiscard]] double median(std::vector<double> values);

}  // namespace lily
