// The forward pass, said once for every backend, for prefill and decode alike.
#pragma once

#include <functional>
#include <span>

#include "backend/backend.h"
#include "base/result.h"
#include "model/weights.h"

namespace lily {

/// Called with the residual stream after the embedding (index 0) and after each layer (index layer + 1).
using ResidualProbe = std::function<void(int index)>;

/// Runs `batch` through the model. Advances the states of its segments and writes logits
/// [batch.logits_rows(), V] in f32, unmasked, in the order of the segments.
Result<void> forward(Backend& backend, const ModelWeights& weights, const Batch& batch,
                     std::span<float> logits, const ResidualProbe& probe = {});

/// The same, but only the likeliest id below `end` of each row that wants logits, on a backend that
/// chooses().
Result<void> forward_greedy(Backend& backend, const ModelWeights& weights, const Batch& batch,
                            std::span<TokenId> best, TokenId end);

/// The same, with what a sampler may need of each row, on a backend whose candidate_rows() are enough.
Result<void> forward_candidates(Backend& backend, const ModelWeights& weights, const Batch& batch,
                                std::span<Candidates> candidates, TokenId end);

}  // namespace lily
