// How good a model's predictions are: perplexity of a text, and the distance between two ways to run a model.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/loaded_model.h"

namespace lily {

/// A new sequence fed step by step, with the logits of every row.
class LogitsStream {
 public:
  /// `chunk`: rows of a step (0: the model's max_rows; 1: token by token, as decoding does).
  static Result<LogitsStream> create(LoadedModel& model, std::int64_t chunk);

  /// Runs the next step, some of the first of `remaining`, and returns its logits, [rows, V]; rows() says how
  /// many. Valid until the next call.
  Result<std::span<const float>> step(std::span<const TokenId> remaining);
  /// step() for exactly `tokens`.
  Result<std::span<const float>> step_all(std::span<const TokenId> tokens);
  [[nodiscard]] std::int64_t rows() const { return rows_; }

 private:
  LogitsStream(LoadedModel& model, Sequence sequence, std::int64_t chunk)
      : model_(&model), sequence_(std::move(sequence)), chunk_(chunk) {}
  LoadedModel* model_;
  Sequence sequence_;
  std::int64_t chunk_ = 0;
  std::int64_t rows_ = 0;
  std::vector<float> logits_;
};

struct EvaluationOptions {
  std::int64_t context = 2048;  ///< tokens of a window
  std::int64_t chunk = 0;       ///< rows of a step (0: the model's)
  /// Called with the tokens done so far; returning false ends with kCancelled.
  std::function<bool(std::int64_t done)> progress;
};

/// Mean of per-token values, with the standard error of that mean.
struct Mean {
  double value = 0;
  double standard_error = 0;
};

/// How far the evaluated model's predictions are from the other's, over the scored positions.
struct Distance {
  Mean kl;             ///< KL(other || evaluated), nats
  double kl_99th = 0;  ///< 99th percentile
  double kl_max = 0;
  double top1_agreement = 0;  ///< part of the positions where both have the same likeliest token
  double other_perplexity = 0;
  std::int64_t first_disagreement = -1;  ///< the first such position among the scored ones; -1: none
};

struct Evaluation {
  std::int64_t tokens = 0;  ///< of all texts
  std::int64_t windows = 0;
  std::int64_t scored = 0;  ///< tokens with a prediction
  Mean nll;                 ///< negative log-likelihood a token, nats
  Mean perplexity;          ///< e^nll; the error by the delta method
  std::optional<Distance> distance;
};

/// Cuts each text into windows of `context` that do not overlap, the last one shorter, and scores every token
/// of a window but its first, given the tokens before it in the window. Probabilities are over the whole
/// vocabulary of the head. With `other`, which has to have the same vocabulary, also compares the two. The
/// models hold one sequence each and their max_seq covers a window.
Result<Evaluation> evaluate(LoadedModel& model, LoadedModel* other,
                            std::span<const std::vector<TokenId>> texts, const EvaluationOptions& options);

/// Mean and standard error of `values`, summed in double in their order.
[[nodiscard]] Mean mean_of(std::span<const double> values);
/// The smallest value that at least `part` (0..1) of the values do not exceed.
[[nodiscard]] double percentile(std::vector<double> values, double part);

/// Logits of one row to logs of probabilities.
class LogSoftmax {
 public:
  explicit LogSoftmax(std::span<const float> logits);
  [[nodiscard]] double operator()(float logit) const { return logit - largest_ - log_sum_; }

 private:
  double largest_ = 0;
  double log_sum_ = 0;  // of e^(logit - largest_)
};

/// -log softmax(logits)[target]
[[nodiscard]] double negative_log_likelihood(std::span<const float> logits, TokenId target);
/// KL(softmax(p_logits) || softmax(q_logits)), nats, never below 0.
[[nodiscard]] double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits);

}  // namespace lily
