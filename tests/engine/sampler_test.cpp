#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <set>

namespace lily {
namespace {

std::vector<float> flat(std::size_t vocab) {
  std::vector<float> logits(vocab);
  for (std::size_t i = 0; i < vocab; ++i) logits[i] = 0.01F * static_cast<float>((i * 37) % 101);
  return logits;
}

Sampled sample(SamplingParams params, std::vector<float> logits, const std::vector<TokenId>& prompt = {},
               const std::vector<TokenId>& generated = {}, int top = 0) {
  const auto end = static_cast<TokenId>(logits.size());
  return Sampler(std::move(params), end).sample(logits, prompt, generated, true, top);
}

// A stream of 40 draws, each fed with those before it.
std::vector<TokenId> stream(const SamplingParams& params, std::size_t vocab = 500) {
  std::vector<TokenId> ids;
  for (int i = 0; i < 40; ++i) ids.push_back(sample(params, flat(vocab), {}, ids).id);
  return ids;
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowestIdOfATie) {
  EXPECT_EQ(sample({.temperature = 0}, {1, 3, 2, 3}).id, 1);
}

TEST(Sampler, IdsWithoutATokenAreNeverSampled) {
  std::vector<float> logits = {0, 1, 2, 50};
  EXPECT_EQ(Sampler({.temperature = 0}, 3).sample(logits, {}, {}, false, 0).id, 2);
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    logits = {0, 1, 2, 50};
    EXPECT_LT(Sampler({.temperature = 2, .seed = seed}, 3).sample(logits, {}, {}, false, 0).id, 3);
  }
}

TEST(Sampler, EqualSeedsGiveEqualTextAndOthersDiffer) {
  EXPECT_EQ(stream({.seed = 7}), stream({.seed = 7}));
  std::set<std::vector<TokenId>> distinct;
  for (std::uint64_t seed : {0, 1, 2, 3}) distinct.insert(stream({.seed = seed}));
  EXPECT_EQ(distinct.size(), 4U);
}

TEST(Sampler, FrequenciesFollowTheDistribution) {
  // p = (1/2, 1/3, 1/6): 60,000 draws have a standard deviation below 0.0021 each.
  const std::vector<float> logits = {std::log(3.0F), std::log(2.0F), 0.0F};
  for (const SamplingParams& params :
       {SamplingParams{}, SamplingParams{.top_k = 3}, SamplingParams{.top_p = 0.9999F}}) {
    std::vector<int> counts(3);
    for (std::uint64_t seed = 0; seed < 60000; ++seed) {
      SamplingParams p = params;
      p.seed = seed;
      ++counts[static_cast<std::size_t>(sample(p, logits).id)];
    }
    EXPECT_NEAR(counts[0] / 60000.0, 1.0 / 2, 0.01);
    EXPECT_NEAR(counts[1] / 60000.0, 1.0 / 3, 0.01);
    EXPECT_NEAR(counts[2] / 60000.0, 1.0 / 6, 0.01);
  }
}

TEST(Sampler, TemperatureSharpens) {
  const std::vector<float> logits = {1, 0};
  int first = 0;
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    first += sample({.temperature = 0.5F, .seed = seed}, logits).id == 0 ? 1 : 0;
  }
  EXPECT_NEAR(first / 20000.0, 1 / (1 + std::exp(-2.0)), 0.01);
}

std::set<TokenId> reachable(SamplingParams params, const std::vector<float>& logits) {
  std::set<TokenId> ids;
  for (params.seed = 0; params.seed < 3000; ++params.seed) ids.insert(sample(params, logits).id);
  return ids;
}

TEST(Sampler, CutsKeepWhatTheySay) {
  // Probabilities 0.4, 0.3, 0.2, 0.1.
  const std::vector<float> logits = {std::log(0.4F), std::log(0.3F), std::log(0.2F), std::log(0.1F)};
  using Ids = std::set<TokenId>;
  EXPECT_EQ(reachable({.top_k = 2}, logits), (Ids{0, 1}));
  EXPECT_EQ(reachable({.top_k = 1}, logits), (Ids{0}));
  EXPECT_EQ(reachable({.top_k = 0}, logits), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(reachable({.top_k = -1}, logits), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(reachable({.top_k = 4}, logits), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(reachable({.top_k = 1'000'000'000}, logits), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(reachable({.top_p = 0.65F}, logits), (Ids{0, 1}));
  EXPECT_EQ(reachable({.top_p = 0.75F}, logits), (Ids{0, 1, 2}));
  EXPECT_EQ(reachable({.top_p = 0.0F}, logits), (Ids{0}));
  EXPECT_EQ(reachable({.top_p = 1e-9F}, logits), (Ids{0}));
  EXPECT_EQ(reachable({.min_p = 0.45F}, logits), (Ids{0, 1, 2}));
  EXPECT_EQ(reachable({.min_p = 1.0F}, logits), (Ids{0}));
  // top_p looks at what top_k left: 0.4 / 0.9 is below 0.5, so two remain.
  EXPECT_EQ(reachable({.top_p = 0.5F, .top_k = 3}, logits), (Ids{0, 1}));
}

TEST(Sampler, NucleusWiderThanTheFirstSortedPrefix) {
  // A uniform distribution over 5,000 ids: top_p 0.5 keeps 2,500, far more than one sorted prefix.
  const auto ids = reachable({.top_p = 0.5F}, std::vector<float>(5000, 0.0F));
  EXPECT_GT(ids.size(), 1500U);
  EXPECT_LT(*ids.rbegin(), 2501);
}

TEST(Sampler, RepetitionPenaltyNeverRewards) {
  // Logits (2, -2, 1) with 0 and 1 seen, penalty 1.5, become (1.333, -3, 1).
  std::vector<float> logits = {2, -2, 1};
  const std::vector<TokenId> prompt = {0};
  const std::vector<TokenId> generated = {1};
  (void)Sampler({.temperature = 0, .repetition_penalty = 1.5F}, 3)
      .sample(logits, prompt, generated, false, 0);
  EXPECT_FLOAT_EQ(logits[0], 2 / 1.5F);
  EXPECT_FLOAT_EQ(logits[1], -3);
  EXPECT_FLOAT_EQ(logits[2], 1);
}

TEST(Sampler, RepetitionPenaltyLooksFurtherThan20TokensBack) {
  std::vector<TokenId> generated(37);
  std::iota(generated.begin(), generated.end(), 0);
  std::vector<float> logits(100, 1.0F);
  (void)Sampler({.temperature = 0, .repetition_penalty = 1.4F}, 100).sample(logits, {}, generated, false, 0);
  EXPECT_FLOAT_EQ(logits[7], 1 / 1.4F);  // last seen 30 back
  logits.assign(100, 1.0F);
  (void)Sampler({.temperature = 0, .repetition_penalty = 1.4F, .repetition_window = 10}, 100)
      .sample(logits, {}, generated, false, 0);
  EXPECT_FLOAT_EQ(logits[7], 1);
  EXPECT_FLOAT_EQ(logits[30], 1 / 1.4F);
}

TEST(Sampler, PresenceAndFrequencyCountTheAnswerOnly) {
  std::vector<float> logits(4, 1.0F);
  const std::vector<TokenId> prompt = {3};
  const std::vector<TokenId> generated = {0, 0, 1};
  (void)Sampler({.temperature = 0, .presence_penalty = 0.5F, .frequency_penalty = 0.25F}, 4)
      .sample(logits, prompt, generated, false, 0);
  EXPECT_FLOAT_EQ(logits[0], 0.0F);
  EXPECT_FLOAT_EQ(logits[1], 0.25F);
  EXPECT_FLOAT_EQ(logits[2], 1.0F);
  EXPECT_FLOAT_EQ(logits[3], 1.0F);
}

TEST(Sampler, LogitBiasMovesAndBans) {
  EXPECT_EQ(sample({.temperature = 0, .logit_bias = {{2, 100.0F}}}, {3, 2, 1}).id, 2);
  EXPECT_EQ(sample({.temperature = 0, .logit_bias = {{0, -100.0F}, {77, 1.0F}}}, {3, 2, 1}).id, 1);
}

TEST(Sampler, LogprobsAreTheLogSoftmaxOfTheRawLogits) {
  const std::vector<float> logits = {0.5F, 2.0F, -1.0F, 1.0F};
  double sum = 0;
  for (const float l : logits) sum += std::exp(l);
  const Sampled s = sample({.temperature = 0, .presence_penalty = 2}, logits, {}, {1}, 3);
  EXPECT_EQ(s.id, 3);  // the penalty moved the choice, not the log-probabilities
  EXPECT_NEAR(s.logprob, 1.0 - std::log(sum), 1e-5);
  ASSERT_EQ(s.top.size(), 3U);
  EXPECT_EQ(s.top[0].id, 1);
  EXPECT_NEAR(s.top[0].logprob, 2.0 - std::log(sum), 1e-5);
  double mass = 0;
  for (std::size_t i = 0; i < s.top.size(); ++i) {
    EXPECT_LE(s.top[i].logprob, 0);
    if (i > 0) {
      EXPECT_LE(s.top[i].logprob, s.top[i - 1].logprob);
    }
    mass += std::exp(s.top[i].logprob);
  }
  EXPECT_LE(mass, 1 + 1e-4);
}

// The best of a vocabulary are found block by block; here against sorting all of it, with many equal logits.
TEST(Sampler, TopLogprobsAreThoseOfAFullSort) {
  for (const std::size_t vocab : {1, 63, 64, 65, 1000, 5000}) {
    std::vector<float> logits(vocab);
    std::uint32_t state = 7;
    for (float& l : logits) {
      state = state * 1664525U + 1013904223U;
      l = static_cast<float>(state >> 24) * 0.05F;
    }
    std::vector<TokenId> ids(vocab);
    std::iota(ids.begin(), ids.end(), 0);
    const auto logit = [&](TokenId id) { return logits[static_cast<std::size_t>(id)]; };
    std::ranges::stable_sort(ids, std::greater{}, logit);
    const int count = static_cast<int>(std::min<std::size_t>(vocab, 20));
    const Sampled sampled = sample({.temperature = 0}, logits, {}, {}, count);
    EXPECT_EQ(sampled.id, ids.front());
    ASSERT_EQ(std::ssize(sampled.top), count);
    for (int i = 0; i < count; ++i) {
      EXPECT_EQ(sampled.top[static_cast<std::size_t>(i)].id, ids[static_cast<std::size_t>(i)])
          << vocab << " " << i;
    }
  }
}

TEST(Sampler, CertainTokenHasLogprobZeroAndNotAbove) {
  const Sampled s = sample({.temperature = 0}, {1000.0F, 0.0F}, {}, {}, 2);
  EXPECT_LE(s.logprob, 0.0F);
  EXPECT_NEAR(s.logprob, 0.0F, 1e-6);
}

// What lies far from the largest logit is left out, as a card does: either the same token or a refusal to
// say.
TEST(Sampler, CandidatesGiveTheTokenOfAllLogits) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0, 3);
  constexpr std::size_t kVocab = 2000;
  std::vector<std::uint64_t> allowed(kVocab / 64 + 1);
  for (std::uint64_t& word : allowed)
    word = (std::uint64_t{random()} << 32 | random()) & (std::uint64_t{random()} << 32 | random());
  int known = 0;
  int cases = 0;
  for (const float temperature : {0.0F, 0.7F, 1.5F}) {
    for (const std::int64_t top_k : {1, 20, 120}) {
      for (const float presence : {0.0F, 1.5F}) {
        for (const bool masked : {false, true}) {
          for (std::uint64_t seed = 0; seed < 20; ++seed) {
            std::vector<float> logits(kVocab);
            for (float& l : logits) l = normal(random);
            std::vector<TokenId> text(40);
            for (TokenId& id : text) id = static_cast<TokenId>(random() % kVocab);
            const Sampler sampler({.temperature = temperature,
                                   .top_p = 0.95F,
                                   .top_k = top_k,
                                   .min_p = 0.01F,
                                   .presence_penalty = presence,
                                   .repetition_penalty = 1.1F,
                                   .seed = seed},
                                  kVocab - 100);
            ASSERT_TRUE(sampler.takes_candidates());
            Candidates candidates;
            candidates.above = 4.0F;
            for (std::size_t i = kVocab; i-- > 0;) {
              if (logits[i] > 4.0F) candidates.list.push_back({static_cast<TokenId>(i), logits[i]});
            }
            const auto mask =
                masked ? std::span<const std::uint64_t>(allowed) : std::span<const std::uint64_t>();
            const auto among = sampler.sample_among(candidates, text, text, mask);
            const auto expected = sampler.sample(logits, text, text, false, 0, mask).id;
            ++cases;
            if (!among) continue;
            ++known;
            EXPECT_EQ(*among, expected) << "temperature " << temperature << " top_k " << top_k;
          }
        }
      }
    }
  }
  EXPECT_GT(known, cases / 3);
  EXPECT_LT(known, cases);
}

TEST(Sampler, CandidatesAreNotTakenWhereTheyCannotTell) {
  EXPECT_FALSE(Sampler({.temperature = 1.0F}, 10).takes_candidates());  // all ids count
  EXPECT_FALSE(Sampler({.temperature = 1.0F, .top_k = 20, .presence_penalty = -1.0F}, 10).takes_candidates());
  EXPECT_FALSE(Sampler({.temperature = 0.0F, .repetition_penalty = 0.9F}, 10).takes_candidates());
  EXPECT_FALSE(Sampler({.temperature = 0.0F, .logit_bias = {{1, 2.0F}}}, 10).takes_candidates());
  EXPECT_TRUE(Sampler({.temperature = 0.0F}, 10).takes_candidates());
}

TEST(Sampler, MaskedLogitsAreNeverDrawn) {
  const float masked = -std::numeric_limits<float>::infinity();
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    EXPECT_EQ(sample({.temperature = 5, .seed = seed}, {masked, 0.0F, masked}).id, 1);
    EXPECT_EQ(sample({.temperature = 5, .top_p = 0.9F, .seed = seed}, {masked, 0.0F, masked}).id, 1);
  }
}

}  // namespace
}  // namespace lily
