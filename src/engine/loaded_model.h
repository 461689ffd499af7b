// Everything that opening a model yields: weights in place, a backend that holds them, and the text side if
// there is one. What the Engine runs on; `lily logits`, `eval` and `bench` use it directly.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "engine/memory_plan.h"
#include "engine/sampler.h"
#include "engine/sequence.h"
#include "engine/state_pool.h"
#include "model/weights.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lily {

struct ModelOptions {
  std::string model = "tiny";  ///< checkpoint directory, or "tiny"
  BackendOptions backend;
  /// Tokens a sequence may hold; 0: min(max_position_embeddings, 32768), on a card with its own memory what
  /// fits.
  std::int64_t max_seq = 0;
  std::int64_t slots = 1;        ///< sequences that run at once
  std::int64_t kv_tokens = 0;    ///< tokens that all sequences together may hold (0: slots * max_seq)
  std::int64_t cache_bytes = 0;  ///< further slots and pages, for a prefix cache of this size
  std::int64_t max_rows = 0;  ///< rows of a step, and so the longest prefill chunk; 0: what suits the backend
  bool prefault = false;      ///< map the checkpoint's pages before anything else
  bool mlock = false;         ///< and keep them in memory
  bool assume_template = false;  ///< take an unknown chat template for Qwen3.6's
};

class LoadedModel {
 public:
  static Result<std::unique_ptr<LoadedModel>> open(const ModelOptions& options);

  [[nodiscard]] const ModelConfig& config() const { return checkpoint_->config(); }
  [[nodiscard]] const Shapes& shapes() const { return weights_.shapes; }
  [[nodiscard]] const ModelWeights& weights() const { return weights_; }
  [[nodiscard]] Checkpoint& checkpoint() { return *checkpoint_; }
  [[nodiscard]] Backend& backend() { return *backend_; }
  [[nodiscard]] StatePool& pool() { return *pool_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::int64_t max_seq() const { return max_seq_; }
  /// Of this machine; nothing but weights where the backend's memory is a device's.
  [[nodiscard]] const MemoryPlan& memory_plan() const { return memory_plan_; }
  [[nodiscard]] std::int64_t max_rows() const { return backend_->max_rows(); }
  /// Ids that end an answer: the union of config.json, generation_config.json and the template's <|im_end|>.
  [[nodiscard]] const std::vector<TokenId>& eos() const { return eos_; }
  /// How to sample where nobody says otherwise: generation_config.json. The seed is not among it.
  [[nodiscard]] const SamplingParams& sampling_defaults() const { return sampling_defaults_; }
  /// <|im_start|>, where messages begin, if the tokenizer has it.
  [[nodiscard]] std::optional<TokenId> turn_start() const { return turn_start_; }
  /// One past the last id that may be sampled: ids without a token are never emitted.
  [[nodiscard]] TokenId vocab_end() const { return vocab_end_; }

  /// Null when the checkpoint has no tokenizer.json (the reference checkpoints).
  [[nodiscard]] const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  /// The template, or why there is none.
  [[nodiscard]] const Result<ChatTemplate>& chat_template() const { return *chat_template_; }

  /// Runs `tokens` through `sequence` in steps of at most `chunk` rows (0: max_rows), cut on the absolute
  /// grid, and leaves the logits of the last row (Logits::kLast) or of every row (kAll, [tokens, V]) in
  /// `logits`. `progress(done)` is called after each step; returning false cancels (kCancelled).
  Result<void> prefill(Sequence& sequence, std::span<const TokenId> tokens, Logits wanted,
                       std::vector<float>& logits, std::int64_t chunk = 0,
                       const std::function<bool(std::int64_t done)>& progress = {});

  /// One decoding step of all `sequences`: appends each one's token and puts the likeliest one after it in
  /// its place (-1: logits that are not numbers, where the backend chooses). `scratch` is for backends that
  /// do not choose themselves.
  Result<void> decode_greedy(std::span<Sequence> sequences, std::span<TokenId> tokens,
                             std::vector<float>& scratch);

 private:
  LoadedModel() = default;
  Result<void> open_text(const ModelOptions& options);
  Result<BackendLimits> make_backend_for(const ModelOptions& options);
  Result<void> plan_memory(const ModelOptions& options, const BackendLimits& limits);
  Result<void> keep_in_memory(const ModelOptions& options);

  std::string name_;
  std::unique_ptr<Checkpoint> checkpoint_;
  ModelWeights weights_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<StatePool> pool_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<Result<ChatTemplate>> chat_template_;
  std::vector<TokenId> eos_;
  SamplingParams sampling_defaults_;
  std::optional<TokenId> turn_start_;
  TokenId vocab_end_ = 0;
  MemoryPlan memory_plan_;
  std::int64_t max_seq_ = 0;
};

/// How many of the `remaining` tokens at absolute `position` the next step takes: at most `chunk`, ending on
/// a multiple of kPrefillGrid unless it takes the rest or `chunk` is smaller than the grid.
[[nodiscard]] std::int64_t next_chunk(std::int64_t position, std::int64_t remaining, std::int64_t chunk);

}  // namespace lily
