// How fast a model runs, greedy and on a synthetic prompt: alone by context length, on a context that is
// there already, and with several sequences at once.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/loaded_model.h"

namespace lily {

/// Runs of a row that differ by more than this say more of what else the machine did than of the model.
inline constexpr double kLargestSpread = 0.03;

/// What a row measures: each of `streams` sequences reads `prompt` new tokens behind `cached` ones that are
/// there already (warm turns of a conversation), then all are continued together.
struct BenchmarkShape {
  std::int64_t prompt = 0;
  std::int64_t cached = 0;
  std::int64_t streams = 1;

  /// "context 256", "50 behind 8192", "4 streams of 256"
  [[nodiscard]] std::string name() const;
};

struct BenchmarkOptions {
  std::vector<BenchmarkShape> shapes;
  std::int64_t decode = 64;  ///< timed steps after the prompt
  std::int64_t rounds = 2;   ///< measurements of each shape, forwards and backwards through the list
  std::int64_t chunk = 0;    ///< prompt tokens of a step (0: the model's max_rows)
  /// Called between steps with what is being run; returning false ends with kCancelled.
  std::function<bool(const std::string& what)> progress;
};

/// One timed run.
struct BenchmarkRun {
  std::int64_t read = 0;                  ///< tokens of the prompts, of all streams
  double prefill_seconds = 0;             ///< until the first token of every stream is readable
  double decode_seconds = 0;              ///< from there to the last token
  std::int64_t decoded = 0;               ///< tokens after the first ones, of all streams
  std::vector<double> step_seconds = {};  ///< one a decoding step
  std::vector<TokenId> tokens = {};       ///< the first ones, then those of every step
};

/// All runs of one shape.
struct BenchmarkRow {
  BenchmarkShape shape;
  std::vector<BenchmarkRun> runs = {};
  /// A decode step has to move, at the middle of the timed steps; 0 where that depends on what is decoded
  /// (several streams share the experts they have in common).
  double bytes_per_token = 0;
  /// Multiply-adds of a prompt token: prompt_multiplies(); 0 where the model is not ours.
  double multiplies_per_token = 0;

  [[nodiscard]] double prefill_seconds() const;  ///< median over the runs
  [[nodiscard]] double decode_seconds() const;   ///< median over the runs, of all timed steps
  [[nodiscard]] double prefill_tokens_per_second() const;
  [[nodiscard]] double decode_tokens_per_second() const;  ///< of all streams
  [[nodiscard]] double bytes_per_second() const;
  [[nodiscard]] double multiplies_per_second() const;  ///< of the prompts
  /// Largest over smallest time of a run, minus 1, of prefill or decode, whichever is worse.
  [[nodiscard]] double spread() const;
  /// Why the row must not be quoted: its runs took different times or gave different tokens. Empty: it may.
  [[nodiscard]] std::string refused() const;
};

/// Runs every round of every shape in the order that `BenchmarkOptions::rounds` says, each run behind an
/// untimed one of the same shape. `run` does one and is told what it is.
using BenchmarkRunner =
    std::function<Result<BenchmarkRun>(const BenchmarkShape& shape, const std::string& what)>;
Result<void> run_rounds(const BenchmarkOptions& options, const BenchmarkRunner& run,
                        std::vector<BenchmarkRow>& rows);

/// Timed on the model itself: the prompt until the first token is readable, then single steps. Not timed:
/// loading, making the prompt, the `cached` tokens.
Result<std::vector<BenchmarkRow>> run_benchmark(LoadedModel& model, const BenchmarkOptions& options);

/// What a model has to be opened with for `options`: sequences at once, tokens of the longest one, tokens of
/// all that are there at the same time.
struct BenchmarkRoom {
  std::int64_t slots = 1;
  std::int64_t max_seq = 0;
  std::int64_t kv_tokens = 0;
};
[[nodiscard]] BenchmarkRoom benchmark_room(const BenchmarkOptions& options);

/// Tokens `begin` to `begin + length` of the synthetic prompt: token i is ((i * 2654435761) mod 2^32) mod
/// vocab.
[[nodiscard]] std::vector<TokenId> benchmark_prompt(std::int64_t begin, std::int64_t length,
                                                    std::int64_t vocab);

/// Bytes a decode step at `position` has to move: weights read once, recurrent state read and written, K/V
/// rows read.
[[nodiscard]] double decode_bytes(LoadedModel& model, std::int64_t position);

/// Multiply-adds of the layers' products for one prompt token: a parameter each, of the experts those that a
/// token is sent to. Not counted: the head, which a prompt needs once, and what has no weights, attention
/// over the rows behind it above all.
[[nodiscard]] double prompt_multiplies(const ModelWeights& weights);

[[nodiscard]] double median(std::vector<double> values);

}  // namespace lily
