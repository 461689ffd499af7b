#include "model/forward.h"

#include <variant>

namespace lily {
namespace {

// x += mixer(norm(x)); x += mlp(norm(x))
void decoder_layer(Backend& backend, const LayerWeights& layer, int index, int& linear_index,
                   int& attention_index) {
  if (const auto* recurrent = std::get_if<RecurrentWeights>(&layer.mixer)) {
    backend.recurrent_block({.layer = index, .linear_index = linear_index++, .weights = *recurrent});
  } else {
    backend.attention_block({.layer = index,
                             .attention_index = attention_index++,
                             .weights = std::get<AttentionWeights>(layer.mixer)});
  }
  if (const auto* moe = std::get_if<MoeWeights>(&layer.mlp)) {
    backend.moe_block({.layer = index, .weights = *moe});
  } else {
    backend.mlp_block({.layer = index, .weights = std::get<MlpWeights>(layer.mlp)});
  }
}

// Everything before the head.
void layers(Backend& backend, const ModelWeights& weights, const Batch& batch, const ResidualProbe& probe) {
  backend.begin(batch);
  backend.embed({.embed_tokens = weights.embed_tokens});
  if (probe) probe(0);

  int linear_index = 0;
  int attention_index = 0;
  for (int index = 0; const LayerWeights& layer : weights.layers) {
    decoder_layer(backend, layer, index, linear_index, attention_index);
    ++index;
    if (probe) probe(index);
  }
}

}  // namespace

Result<void> forward(Backend& backend, const ModelWeights& weights, const Batch& batch,
                     std::span<float> logits, const ResidualProbe& probe) {
  layers(backend, weights, batch, probe);
  backend.head({.norm = weights.norm, .lm_head = weights.lm_head, .logits = logits});
  return backend.finish();
}

Result<void> forward_greedy(Backend& backend, const ModelWeights& weights, const Batch& batch,
                            std::span<TokenId> best, TokenId end) {
  LILY_CHECK(backend.chooses(), "{} does not choose", backend.description());
  layers(backend, weights, batch, {});
  backend.head(
      {.norm = weights.norm, .lm_head = weights.lm_head, .logits = {}, .best = best, .best_end = end});
  return backend.finish();
}

Result<void> forward_candidates(Backend& backend, const ModelWeights& weights, const Batch& batch,
                                std::span<Candidates> candidates, TokenId end) {
  LILY_CHECK(std::ssize(candidates) <= backend.candidate_rows(), "candidates of {} rows", candidates.size());
  layers(backend, weights, batch, {});
  backend.head({.norm = weights.norm,
                .lm_head = weights.lm_head,
                .logits = {},
                .candidates = candidates,
                .best_end = end});
  return backend.finish();
}

}  // namespace lily
