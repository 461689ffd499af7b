// From logits to a token: a pure function of logits, parameters, history and a seeded random stream.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/types.h"

namespace lily {

/// Applied in this order: logit_bias, repetition/presence/frequency penalties, temperature, top_k, top_p,
/// min_p.
struct SamplingParams {
  float temperature = 1.0F;  ///< 0: greedy
  float top_p = 1.0F;        ///< 0 keeps one candidate
  std::int64_t top_k = 0;    ///< 0 or -1: off
  float min_p = 0.0F;
  float presence_penalty = 0.0F;    ///< over the whole answer so far
  float frequency_penalty = 0.0F;   ///< over the whole answer so far
  float repetition_penalty = 1.0F;  ///< over prompt and answer, the last `repetition_window` tokens
  std::int64_t repetition_window = 1024;
  std::uint64_t seed = 0;
  std::map<TokenId, float> logit_bias = {};
};

struct TokenLogprob {
  TokenId id = 0;
  float logprob = 0;
};

struct Sampled {
  TokenId id = 0;
  float logprob = 0;              ///< log-softmax of the raw logits, masked ids excluded
  std::vector<TokenLogprob> top;  ///< the `top_logprobs` likeliest, descending
};

class Sampler {
 public:
  /// Ids from `vocab_end` on have no token and are never sampled.
  Sampler(SamplingParams params, TokenId vocab_end);

  /// Draws the token that follows `generated`: equal arguments give equal tokens. `prompt` and `generated`
  /// feed the penalties. `logits` [V] is scratch and comes back modified. `want_logprob` fills the
  /// log-probabilities. `allowed`, unless empty, has bit id % 64 of word id / 64 set for ids that may be
  /// drawn.
  Sampled sample(std::span<float> logits, std::span<const TokenId> prompt, std::span<const TokenId> generated,
                 bool want_logprob, int top_logprobs, std::span<const std::uint64_t> allowed = {}) const;

  /// Whether sample_among() may know the token: no parameter raises a logit or asks for the sum of all.
  [[nodiscard]] bool takes_candidates() const;
  /// The id that sample() would draw, if the candidates say so: nothing left out can be among the top_k.
  [[nodiscard]] std::optional<TokenId> sample_among(const Candidates& candidates,
                                                    std::span<const TokenId> prompt,
                                                    std::span<const TokenId> generated,
                                                    std::span<const std::uint64_t> allowed = {}) const;

 private:
  /// `find(id)`: where its logit is kept, or null.
  template <class Find>
  void penalize(Find&& find, std::span<const TokenId> prompt, std::span<const TokenId> generated) const;
  [[nodiscard]] TokenId draw(std::span<const float> logits, std::uint64_t step) const;
  /// How many of `candidates`, in descending order, top_p and min_p leave, and their weight. `total`: of all.
  struct Kept {
    std::size_t count;
    double mass;
  };
  [[nodiscard]] Kept cut(std::span<const TokenLogprob> candidates, double total) const;
  [[nodiscard]] TokenId pick(std::span<const TokenLogprob> candidates, Kept kept, std::uint64_t step) const;
  [[nodiscard]] double weigh(std::span<const TokenLogprob> candidates) const;
  [[nodiscard]] TokenId draw_uncut(std::span<const float> logits, double largest, std::uint64_t step) const;
  /// e^((logit - largest) / temperature)
  [[nodiscard]] double weight(float logit, double largest) const;

  SamplingParams params_;
  TokenId vocab_end_;
};

}  // namespace lily
