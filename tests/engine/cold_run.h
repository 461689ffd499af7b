// How an answer was computed, and the same computed again from nothing.
#pragma once

#include <set>
#include <vector>

#include "engine/loaded_model.h"
#include "engine/sampler.h"

namespace lily::testing {

/// Consecutive tokens evaluated in the same manner: read in chunks on the grid, or one by one.
struct Run {
  std::int64_t end = 0;  ///< position behind the last of them
  Phase phase = Phase::kPrefill;
  auto operator<=>(const Run&) const = default;
};

/// How the tokens of a sequence came about, from the first on. Reading that goes on at a multiple of
/// kPrefillGrid is one run: where it was cut changes nothing.
using Recipe = std::vector<Run>;

void append(Recipe& recipe, Run run);
/// The recipe of the first `length` tokens.
[[nodiscard]] Recipe first_part(const Recipe& recipe, std::int64_t length);

/// An engine's answer to one prompt.
struct Answered {
  std::vector<TokenId> prompt;
  std::vector<Sampled> tokens;  ///< with log-probabilities
  std::int64_t cached = 0;
};

/// The largest difference of a log-probability between `answered` and a run of the same tokens from nothing
/// that follows `recipe` up to answered.cached; infinity if they do not even name the same tokens. 0: the
/// same bits.
float cold_difference(LoadedModel& model, const Answered& answered, const Recipe& recipe);

/// What is known of earlier requests: all manners in which a beginning of `prompt` was evaluated.
class Memory {
 public:
  void add(std::vector<TokenId> evaluated, Recipe recipe);
  [[nodiscard]] std::set<Recipe> recipes(std::span<const TokenId> prefix) const;

 private:
  struct Known {
    std::vector<TokenId> tokens;
    Recipe recipe;
  };
  std::vector<Known> known_;
};

}  // namespace lily::testing
