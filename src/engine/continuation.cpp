#include "engine/continuation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lily {
namespace {

TokenId likeliest(std::span<const float> logits, TokenId end) {
  const auto choices = logits.first(static_cast<std::size_t>(end));
  return static_cast<TokenId>(std::ranges::max_element(choices) - choices.begin());
}

// The likeliest ids of `logits`, with the log of their probabilities.
std::vector<TokenLogprob> likeliest_tokens(std::span<const float> logits) {
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto count = std::min<std::ptrdiff_t>(kComparedTokens, std::ssize(ids));
  std::ranges::partial_sort(ids, ids.begin() + count, std::ranges::greater(),
                            [&](TokenId id) { return logits[static_cast<std::size_t>(id)]; });
  const LogSoftmax log_softmax(logits);
  std::vector<TokenLogprob> top;
  for (const TokenId id : std::span(ids).first(static_cast<std::size_t>(count))) {
    top.push_back(
        {.id = id, .logprob = static_cast<float>(log_softmax(logits[static_cast<std::size_t>(id)]))});
  }
  return top;
}

}  // namespace

Result<std::vector<ContinuationStep>> continue_greedily(LoadedModel& model, std::span<const TokenId> prompt,
                                                        std::int64_t steps) {
  LILY_TRY(Sequence sequence, Sequence::create(model.pool()));
  std::vector<float> logits;
  LILY_TRY_VOID(model.prefill(sequence, prompt, Logits::kLast, logits));
  std::vector<ContinuationStep> continuation;
  for (std::int64_t i = 0; i < steps; ++i) {
    const TokenId token = likeliest(logits, model.vocab_end());
    continuation.push_back({.token = token, .top = likeliest_tokens(logits)});
    LILY_TRY_VOID(model.prefill(sequence, std::span(&token, 1), Logits::kLast, logits, /*chunk=*/1));
  }
  return continuation;
}

Result<void> compare_continuation(LoadedModel& model, std::span<const TokenId> prompt,
                                  std::span<const ContinuationStep> other, ContinuationDistance& distance) {
  LILY_TRY(Sequence sequence, Sequence::create(model.pool()));
  std::vector<float> logits;
  LILY_TRY_VOID(model.prefill(sequence, prompt, Logits::kLast, logits));
  bool diverged = false;
  for (std::size_t i = 0; i < other.size(); ++i) {
    const ContinuationStep& step = other[i];
    const bool agrees = likeliest(logits, model.vocab_end()) == step.token;
    distance.agreed += agrees ? 1 : 0;
    if (!agrees && !diverged) distance.first.push_back(static_cast<std::int64_t>(i));
    diverged = diverged || !agrees;
    distance.kl.push_back(kl_of_likeliest(step.top, logits));
    LILY_TRY_VOID(model.prefill(sequence, std::span(&step.token, 1), Logits::kLast, logits, /*chunk=*/1));
  }
  ++distance.continuations;
  distance.steps += std::ssize(other);
  return {};
}

double kl_of_likeliest(std::span<const TokenLogprob> top, std::span<const float> logits) {
  const LogSoftmax log_softmax(logits);
  double other_rest = 1;
  double mine_rest = 1;
  double sum = 0;
  for (const TokenLogprob& token : top) {
    const double other = std::exp(static_cast<double>(token.logprob));
    const double mine = log_softmax(logits[static_cast<std::size_t>(token.id)]);
    sum += other * (token.logprob - mine);
    other_rest -= other;
    mine_rest -= std::exp(mine);
  }
  // What rounding leaves of nothing says nothing.
  constexpr double kNothing = 1e-6;
  if (other_rest > kNothing) sum += other_rest * std::log(other_rest / std::max(mine_rest, kNothing));
  return std::max(sum, 0.0);
}

}  // namespace lily
