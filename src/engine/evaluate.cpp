#include "engine/evaluate.h"

#include <algorithm>
#include <cmath>

namespace lily {
namespace {

std::ptrdiff_t argmax(std::span<const float> logits) {
  return std::ranges::max_element(logits) - logits.begin();
}

// What the windows add up to: one entry a scored token.
struct Scores {
  std::vector<double> nll;
  std::vector<double> other_nll;
  std::vector<double> kl;
  std::int64_t agreed = 0;
  std::int64_t first_disagreement = -1;
};

// `logits` [rows, V] predict `targets` [rows].
void score(std::span<const float> logits, std::span<const TokenId> targets, std::span<const float> other,
           Scores& scores) {
  const std::size_t vocab = logits.size() / targets.size();
  for (std::size_t row = 0; row < targets.size(); ++row) {
    const auto mine = logits.subspan(row * vocab, vocab);
    scores.nll.push_back(negative_log_likelihood(mine, targets[row]));
    if (other.empty()) continue;
    const auto theirs = other.subspan(row * vocab, vocab);
    scores.other_nll.push_back(negative_log_likelihood(theirs, targets[row]));
    scores.kl.push_back(kl_divergence(theirs, mine));
    if (argmax(mine) == argmax(theirs)) {
      ++scores.agreed;
    } else if (scores.first_disagreement < 0) {
      scores.first_disagreement = std::ssize(scores.kl) - 1;
    }
  }
}

// One window; its last token is only a target. `done` counts tokens over all windows.
Result<void> score_window(LoadedModel& model, LoadedModel* other, std::span<const TokenId> window,
                          const EvaluationOptions& options, std::int64_t& done, Scores& scores) {
  LILY_TRY(LogitsStream mine, LogitsStream::create(model, options.chunk));
  std::optional<LogitsStream> theirs;
  if (other != nullptr) {
    LILY_TRY(theirs, LogitsStream::create(*other, options.chunk));
  }
  const auto inputs = window.first(window.size() - 1);
  for (std::size_t at = 0; at < inputs.size();) {
    LILY_TRY(const auto logits, mine.step(inputs.subspan(at)));
    const auto rows = static_cast<std::size_t>(mine.rows());
    std::span<const float> other_logits;
    if (theirs) {
      LILY_TRY(other_logits, theirs->step_all(inputs.subspan(at, rows)));
    }
    score(logits, window.subspan(at + 1, rows), other_logits, scores);
    at += rows;
    done += mine.rows();
    if (options.progress && !options.progress(done)) return fail(ErrorCode::kCancelled, "interrupted");
  }
  ++done;  // the token that was only a target
  return {};
}

Distance distance_of(const Scores& scores) {
  return {.kl = mean_of(scores.kl),
          .kl_99th = percentile(scores.kl, 0.99),
          .kl_max = *std::ranges::max_element(scores.kl),
          .top1_agreement = static_cast<double>(scores.agreed) / static_cast<double>(scores.kl.size()),
          .other_perplexity = std::exp(mean_of(scores.other_nll).value),
          .first_disagreement = scores.first_disagreement};
}

}  // namespace

Result<LogitsStream> LogitsStream::create(LoadedModel& model, std::int64_t chunk) {
  LILY_TRY(Sequence sequence, Sequence::create(model.pool()));
  return LogitsStream(model, std::move(sequence), chunk > 0 ? chunk : model.max_rows());
}

Result<std::span<const float>> LogitsStream::step(std::span<const TokenId> remaining) {
  const std::int64_t rows =
      next_chunk(sequence_.length(), static_cast<std::int64_t>(remaining.size()), chunk_);
  return step_all(remaining.first(static_cast<std::size_t>(rows)));
}

Result<std::span<const float>> LogitsStream::step_all(std::span<const TokenId> tokens) {
  rows_ = static_cast<std::int64_t>(tokens.size());
  LILY_TRY_VOID(model_->prefill(sequence_, tokens, Logits::kAll, logits_, chunk_));
  return std::span<const float>(logits_);
}

Result<Evaluation> evaluate(LoadedModel& model, LoadedModel* other,
                            std::span<const std::vector<TokenId>> texts, const EvaluationOptions& options) {
  if (other != nullptr && other->shapes().vocab != model.shapes().vocab) {
    return fail(ErrorCode::kInvalidArgument, "expected two models of one vocabulary, found {} and {} tokens",
                model.shapes().vocab, other->shapes().vocab);
  }
  Evaluation result;
  const auto context = static_cast<std::size_t>(options.context);
  Scores scores;
  std::int64_t done = 0;
  for (const std::vector<TokenId>& text : texts) {
    if (text.size() < 2) {
      return fail(ErrorCode::kInvalidArgument, "expected texts of at least 2 tokens, found one of {}",
                  text.size());
    }
    result.tokens += std::ssize(text);
    for (std::size_t at = 0; at + 1 < text.size(); at += context) {
      const auto window = std::span(text).subspan(at, std::min(context, text.size() - at));
      LILY_TRY_VOID(score_window(model, other, window, options, done, scores));
      ++result.windows;
    }
  }
  result.scored = static_cast<std::int64_t>(scores.nll.size());
  result.nll = mean_of(scores.nll);
  result.perplexity.value = std::exp(result.nll.value);
  result.perplexity.standard_error = result.perplexity.value * result.nll.standard_error;
  if (other != nullptr) result.distance = distance_of(scores);
  return result;
}

Mean mean_of(std::span<const double> values) {
  const auto count = static_cast<double>(values.size());
  double sum = 0;
  for (const double v : values) sum += v;
  const double mean = sum / count;
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  return {mean, values.size() > 1 ? std::sqrt(squares / (count - 1) / count) : 0};
}

double percentile(std::vector<double> values, double part) {
  LILY_CHECK(!values.empty(), "percentile of nothing");
  const auto rank = static_cast<std::ptrdiff_t>(std::ceil(part * static_cast<double>(values.size())));
  const auto nth = values.begin() + std::clamp<std::ptrdiff_t>(rank - 1, 0, std::ssize(values) - 1);
  std::ranges::nth_element(values, nth);
  return *nth;
}

LogSoftmax::LogSoftmax(std::span<const float> logits) : largest_(*std::ranges::max_element(logits)) {
  double sum = 0;
  for (const float l : logits) sum += std::exp(l - largest_);
  log_sum_ = std::log(sum);
}

double negative_log_likelihood(std::span<const float> logits, TokenId target) {
  const LogSoftmax log_softmax(logits);
  return -log_softmax(logits[static_cast<std::size_t>(target)]);
}

double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits) {
  const LogSoftmax p(p_logits);
  const LogSoftmax q(q_logits);
  double sum = 0;
  for (std::size_t i = 0; i < p_logits.size(); ++i) {
    const double log_p = p(p_logits[i]);
    sum += std::exp(log_p) * (log_p - q(q_logits[i]));
  }
  return std::max(sum, 0.0);
}

}  // namespace lily
