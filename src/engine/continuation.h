// Greedy continuations of prompts, and how far a model is from one that somebody else made: another backend,
// another checkpoint, a server of which no more than the likeliest tokens of each step are known.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/evaluate.h"
#include "engine/loaded_model.h"
#include "engine/sampler.h"

namespace lily {

/// Likeliest tokens of a step that are compared: what OpenAI's API gives at most.
inline constexpr std::int64_t kComparedTokens = 20;

/// One token of a continuation, with the likeliest ones of its step, itself among them.
struct ContinuationStep {
  TokenId token = 0;
  std::vector<TokenLogprob> top = {};
};

/// The likeliest token of each of `steps` steps behind `prompt`, decoded one by one.
Result<std::vector<ContinuationStep>> continue_greedily(LoadedModel& model, std::span<const TokenId> prompt,
                                                        std::int64_t steps);

/// Sums over continuations. Both sides read the same tokens: the other's choices.
struct ContinuationDistance {
  std::int64_t continuations = 0;
  std::int64_t steps = 0;
  std::int64_t agreed = 0;          ///< steps where this model's likeliest token is the other's choice
  std::vector<double> kl;           ///< of each step, from below: all tokens outside `top` count as one
  std::vector<std::int64_t> first;  ///< of each continuation that diverges, the step where it first does
};

/// Reads `prompt` and then the other's tokens, and compares what would have come next.
Result<void> compare_continuation(LoadedModel& model, std::span<const TokenId> prompt,
                                  std::span<const ContinuationStep> other, ContinuationDistance& distance);

/// KL(other || model) over the tokens in `top` and the rest as one, which is never more than the whole one.
[[nodiscard]] double kl_of_likeliest(std::span<const TokenLogprob> top, std::span<const float> logits);

}  // namespace lily
