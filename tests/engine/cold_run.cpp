#include "tests/engine/cold_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/forward.h"

namespace lily::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The log-probability of `token` under `logits`, as the sampler has it.
float difference(std::vector<float>& logits, const LoadedModel& model, const Sampled& token) {
  const Sampler sampler({.temperature = 0}, model.vocab_end());
  const Sampled cold =
      sampler.sample(logits, {}, {}, /*want_logprob=*/true, static_cast<int>(token.top.size()));
  float worst = 0;
  for (const TokenLogprob& entry : token.top) {
    const auto same = std::ranges::find(cold.top, entry.id, &TokenLogprob::id);
    if (same == cold.top.end()) return kInfinity;
    worst = std::max(worst, std::abs(entry.logprob - same->logprob));
  }
  return worst;
}

}  // namespace

void append(Recipe& recipe, Run run) {
  const bool goes_on = !recipe.empty() && recipe.back().phase == run.phase &&
                       (run.phase == Phase::kDecode || recipe.back().end % kPrefillGrid == 0);
  if (goes_on) recipe.pop_back();
  if (recipe.empty() || run.end > recipe.back().end) recipe.push_back(run);
}

Recipe first_part(const Recipe& recipe, std::int64_t length) {
  Recipe part;
  for (const Run& run : recipe) {
    part.push_back({std::min(run.end, length), run.phase});
    if (run.end >= length) break;
  }
  return length == 0 ? Recipe() : part;
}

float cold_difference(LoadedModel& model, const Answered& answered, const Recipe& recipe) {
  Recipe whole = recipe;
  append(whole, {std::ssize(answered.prompt), Phase::kPrefill});
  auto sequence = Sequence::create(model.pool()).value();
  std::vector<float> logits;
  const auto feed = [&](std::span<const TokenId> tokens, Phase phase) {
    const auto fed = model.prefill(sequence, tokens, Logits::kLast, logits, phase == Phase::kDecode ? 1 : 0);
    ASSERT_TRUE(fed.ok()) << fed.error().message;
  };
  for (const Run& run : whole) {
    const auto begin = static_cast<std::size_t>(sequence.length());
    feed(std::span(answered.prompt).subspan(begin, static_cast<std::size_t>(run.end) - begin), run.phase);
  }
  float worst = 0;
  for (const Sampled& token : answered.tokens) {
    worst = std::max(worst, difference(logits, model, token));
    feed(std::span(&token.id, 1), Phase::kDecode);
  }
  return worst;
}

void Memory::add(std::vector<TokenId> evaluated, Recipe recipe) {
  known_.push_back({std::move(evaluated), std::move(recipe)});
}

std::set<Recipe> Memory::recipes(std::span<const TokenId> prefix) const {
  std::set<Recipe> found;
  for (const Known& known : known_) {
    if (known.tokens.size() >= prefix.size() &&
        std::ranges::equal(std::span(known.tokens).first(prefix.size()), prefix)) {
      found.insert(first_part(known.recipe, std::ssize(prefix)));
    }
  }
  return found;
}

}  // namespace lily::testing
