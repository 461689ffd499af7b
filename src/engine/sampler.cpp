#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"

namespace lily {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

// SplitMix64 (Steele, Lea, Flood 2014): the `step`-th number of the stream `seed`, uniform in [0, 1).
double uniform(std::uint64_t seed, std::uint64_t step) {
  std::uint64_t z = seed + (step + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

// All are looked at: without a way out the compiler compares many at once.
bool any_above(std::span<const float> logits, float least) {
  int any = 0;
  for (const float l : logits) any |= static_cast<int>(l > least);
  return any != 0;
}

// visit(first index, logits) of each block that holds one above `least()`, which visit may raise.
template <class Least, class Visit>
void for_blocks_above(std::span<const float> logits, Least least, Visit visit) {
  constexpr std::size_t kBlock = 256;
  for (std::size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const auto block = logits.subspan(begin, std::min(kBlock, logits.size() - begin));
    if (any_above(block, least())) visit(begin, block);
  }
}

float largest_of(std::span<const float> logits) {
  float largest = kMasked;
  for_blocks_above(
      logits, [&] { return largest; },
      [&](std::size_t, std::span<const float> block) {
        for (const float l : block) largest = l > largest ? l : largest;
      });
  return largest;
}

TokenId argmax(std::span<const float> logits) {
  return static_cast<TokenId>(std::ranges::find(logits, largest_of(logits)) - logits.begin());
}

double log_sum_exp(std::span<const float> logits) {
  const float largest = largest_of(logits);
  double sum = 0;
  for (const float l : logits) sum += std::exp(static_cast<double>(l) - largest);
  return largest + std::log(sum);
}

// Descending by logit, the lower id first among equals: one order for greedy, top_k and top_logprobs.
bool likelier(const TokenLogprob& a, const TokenLogprob& b) {
  return a.logprob != b.logprob ? a.logprob > b.logprob : a.id < b.id;
}

// A heap of the best so far: of a vocabulary's blocks nearly all hold nothing better than its last.
std::vector<TokenLogprob> likeliest_few(std::span<const float> logits, std::size_t count) {
  std::vector<TokenLogprob> best;
  best.reserve(count);
  const auto last = [&] { return best.size() < count ? kMasked : best.front().logprob; };
  for_blocks_above(logits, last, [&](std::size_t begin, std::span<const float> block) {
    for (std::size_t i = 0; i < block.size(); ++i) {
      if (!(block[i] > last())) continue;  // an equal one has the higher id
      if (best.size() == count) {
        std::ranges::pop_heap(best, likelier);
        best.pop_back();
      }
      best.push_back({static_cast<TokenId>(begin + i), block[i]});
      std::ranges::push_heap(best, likelier);
    }
  });
  std::ranges::sort_heap(best, likelier);
  return best;
}

std::vector<TokenLogprob> likeliest(std::span<const float> logits, std::size_t count) {
  constexpr std::size_t kFew = 512;
  if (count == 0) return {};
  if (count <= kFew) return likeliest_few(logits, std::min(count, logits.size()));
  std::vector<TokenLogprob> all;
  all.reserve(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] != kMasked) all.push_back({static_cast<TokenId>(i), logits[i]});
  }
  if (count < all.size()) {
    std::ranges::nth_element(all, all.begin() + static_cast<std::ptrdiff_t>(count), likelier);
    all.resize(count);
  }
  std::ranges::sort(all, likelier);
  return all;
}

// Word by word: in most states of a grammar most words are all ones or all zeros.
void mask(std::span<float> logits, std::span<const std::uint64_t> allowed) {
  for (std::size_t begin = 0; begin < logits.size(); begin += 64) {
    const std::uint64_t word = begin / 64 < allowed.size() ? allowed[begin / 64] : 0;
    if (word == ~0ULL) continue;
    const auto part = logits.subspan(begin, std::min<std::size_t>(64, logits.size() - begin));
    for (std::size_t i = 0; i < part.size(); ++i) {
      if ((word >> i & 1U) == 0) part[i] = kMasked;
    }
  }
}

}  // namespace

Sampler::Sampler(SamplingParams params, TokenId vocab_end)
    : params_(std::move(params)), vocab_end_(vocab_end) {}

// Presence and frequency subtract (OpenAI's formula, over the answer); repetition divides what is positive
// and multiplies what is negative (Keskar et al. 2019), over the last repetition_window tokens of prompt and
// answer.
template <class Find>
void Sampler::penalize(Find&& find, std::span<const TokenId> prompt,
                       std::span<const TokenId> generated) const {
  for (const auto& [id, bias] : params_.logit_bias) {
    if (float* l = find(id)) *l += bias;
  }
  if (params_.repetition_penalty != 1.0F) {
    std::unordered_set<TokenId> seen;
    const auto window = static_cast<std::size_t>(params_.repetition_window);
    const std::size_t from_answer = std::min(window, generated.size());
    const std::size_t from_prompt = std::min(window - from_answer, prompt.size());
    seen.insert(generated.end() - static_cast<std::ptrdiff_t>(from_answer), generated.end());
    seen.insert(prompt.end() - static_cast<std::ptrdiff_t>(from_prompt), prompt.end());
    for (const TokenId id : seen) {
      if (float* l = find(id))
        *l = *l > 0 ? *l / params_.repetition_penalty : *l * params_.repetition_penalty;
    }
  }
  if (params_.presence_penalty != 0.0F || params_.frequency_penalty != 0.0F) {
    std::unordered_map<TokenId, int> counts;
    for (const TokenId id : generated) ++counts[id];
    for (const auto& [id, count] : counts) {
      if (float* l = find(id))
        *l -= params_.presence_penalty + params_.frequency_penalty * static_cast<float>(count);
    }
  }
}

// Without a cut every token is a candidate and no order is needed.
TokenId Sampler::draw_uncut(std::span<const float> logits, double largest, std::uint64_t step) const {
  double total = 0;
  for (const float l : logits) total += weight(l, largest);
  double rest = uniform(params_.seed, step) * total;
  TokenId last = -1;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double w = weight(logits[i], largest);
    if (w <= 0) continue;
    last = static_cast<TokenId>(i);
    rest -= w;
    if (rest < 0) break;
  }
  return last;
}

// Candidates in descending order, cut by top_k, then top_p, then min_p; one always remains.
TokenId Sampler::draw(std::span<const float> logits, std::uint64_t step) const {
  const double largest = largest_of(logits);
  LILY_CHECK(std::isfinite(largest), "no token can be sampled: all {} logits are masked", logits.size());
  const bool cut_k = params_.top_k > 0 && params_.top_k < static_cast<std::int64_t>(logits.size());
  if (!cut_k && params_.top_p >= 1.0F && params_.min_p <= 0.0F) return draw_uncut(logits, largest, step);

  double total = 0;
  if (!cut_k) {
    for (const float l : logits) total += weight(l, largest);
  }
  // Sorting the whole vocabulary costs more than a decode step's share; the nucleus is nearly always short.
  for (std::size_t count = cut_k ? static_cast<std::size_t>(params_.top_k) : 256;; count *= 16) {
    const auto candidates = likeliest(logits, count);
    if (cut_k) total = weigh(candidates);
    const Kept kept = cut(candidates, total);
    const bool longer_could_matter = kept.count == candidates.size() && candidates.size() == count && !cut_k;
    if (longer_could_matter && count < logits.size()) continue;
    return pick(candidates, kept, step);
  }
}

double Sampler::weigh(std::span<const TokenLogprob> candidates) const {
  double total = 0;
  for (const TokenLogprob& c : candidates) total += weight(c.logprob, candidates.front().logprob);
  return total;
}

Sampler::Kept Sampler::cut(std::span<const TokenLogprob> candidates, double total) const {
  Kept kept{};
  for (; kept.count < candidates.size(); ++kept.count) {
    const double w = weight(candidates[kept.count].logprob, candidates.front().logprob);
    if (kept.count > 0 && (kept.mass >= params_.top_p * total || w < params_.min_p)) break;
    kept.mass += w;
  }
  return kept;
}

TokenId Sampler::pick(std::span<const TokenLogprob> candidates, Kept kept, std::uint64_t step) const {
  double rest = uniform(params_.seed, step) * kept.mass;
  for (const TokenLogprob& c : candidates.first(kept.count)) {
    rest -= weight(c.logprob, candidates.front().logprob);
    if (rest < 0) return c.id;
  }
  return candidates[kept.count - 1].id;
}

double Sampler::weight(float logit, double largest) const {
  return std::exp((static_cast<double>(logit) - largest) / params_.temperature);
}

Sampled Sampler::sample(std::span<float> logits, std::span<const TokenId> prompt,
                        std::span<const TokenId> generated, bool want_logprob, int top_logprobs,
                        std::span<const std::uint64_t> allowed) const {
  logits = logits.subspan(0, std::min(logits.size(), static_cast<std::size_t>(vocab_end_)));
  Sampled sampled;
  double normalizer = 0;
  std::vector<float> raw;
  if (want_logprob) {
    normalizer = log_sum_exp(logits);
    sampled.top = likeliest(logits, static_cast<std::size_t>(top_logprobs));
    for (TokenLogprob& t : sampled.top) {
      t.logprob = static_cast<float>(std::min(0.0, static_cast<double>(t.logprob) - normalizer));
    }
    raw.assign(logits.begin(), logits.end());
  }
  if (!allowed.empty()) mask(logits, allowed);
  const auto find = [&](TokenId id) {
    const bool known = id >= 0 && id < static_cast<TokenId>(logits.size());
    return known ? &logits[static_cast<std::size_t>(id)] : nullptr;
  };
  penalize(find, prompt, generated);
  sampled.id = params_.temperature <= 0.0F ? argmax(logits) : draw(logits, generated.size());
  if (want_logprob) {
    const double l = raw[static_cast<std::size_t>(sampled.id)];
    sampled.logprob = static_cast<float>(std::min(0.0, l - normalizer));
  }
  return sampled;
}

bool Sampler::takes_candidates() const {
  constexpr std::int64_t kMostTopK = 128;
  const bool lowers = params_.logit_bias.empty() && params_.presence_penalty >= 0 &&
                      params_.frequency_penalty >= 0 && params_.repetition_penalty >= 1;
  return lowers && (params_.temperature <= 0 || (params_.top_k > 0 && params_.top_k <= kMostTopK));
}

// Penalties and masks only lower logits, so whatever was left out is still not above `above`.
std::optional<TokenId> Sampler::sample_among(const Candidates& candidates, std::span<const TokenId> prompt,
                                             std::span<const TokenId> generated,
                                             std::span<const std::uint64_t> allowed) const {
  const auto may_be_drawn = [&](TokenId id) {
    const auto word = static_cast<std::size_t>(id) / 64;
    return id < vocab_end_ &&
           (allowed.empty() || (word < allowed.size() && (allowed[word] >> (id % 64) & 1U) != 0));
  };
  std::vector<TokenLogprob> list;
  for (const Candidate& c : candidates.list) {
    if (may_be_drawn(c.id)) list.push_back({c.id, c.logit});
  }
  std::ranges::sort(list, {}, &TokenLogprob::id);
  penalize(
      [&](TokenId id) -> float* {
        const auto at = std::ranges::lower_bound(list, id, {}, &TokenLogprob::id);
        return at != list.end() && at->id == id ? &at->logprob : nullptr;
      },
      prompt, generated);
  std::ranges::sort(list, likelier);
  const std::size_t wanted = params_.temperature <= 0 ? 1 : static_cast<std::size_t>(params_.top_k);
  if (list.size() < wanted || !(list[wanted - 1].logprob > candidates.above)) return std::nullopt;
  list.resize(wanted);
  if (params_.temperature <= 0) return list.front().id;
  return pick(list, cut(list, weigh(list)), generated.size());
}

}  // namespace lily
