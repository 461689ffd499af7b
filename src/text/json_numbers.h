// Numbers as JSON writes them, within bounds, as grammar.
#pragma once

#include <cstdint>
#include <optional>

#include "text/grammar.h"

namespace lily {

/// Whole bounds of a number; an exclusive one is not itself allowed.
struct NumberBounds {
  std::optional<std::int64_t> least;
  std::optional<std::int64_t> most;
  bool least_exclusive = false;
  bool most_exclusive = false;
};

/// Largest magnitude of a bound: numbers have at most 18 digits before the point.
inline constexpr std::int64_t kMaxBound = 999'999'999'999'999'999;

/// Integers within the bounds, without leading zeros, fraction or exponent.
[[nodiscard]] Grammar::Fragment integer_grammar(const NumberBounds& bounds, Grammar& grammar);

/// Numbers within the bounds, with up to 17 digits behind the point; an exponent only where there are no
/// bounds.
[[nodiscard]] Grammar::Fragment number_grammar(const NumberBounds& bounds, Grammar& grammar);

}  // namespace lily
