#include "text/json_numbers.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace lily {
namespace {

using Fragment = Grammar::Fragment;

constexpr std::uint32_t kFractionDigits = 17;

class NumberCompiler {
 public:
  explicit NumberCompiler(Grammar& grammar)
      : grammar_(grammar), digit_(grammar.rule(grammar.bytes('0', '9'))) {}

  // Whole numbers from `least` to `most`, not negative.
  Fragment between(std::int64_t least, std::int64_t most) {
    std::vector<Fragment> parts;
    std::int64_t power = 1;
    for (std::size_t length = 1; length <= 18; ++length, power *= 10) {
      const std::int64_t low = std::max(least, length == 1 ? 0 : power);
      const std::int64_t high = std::min(most, power * 10 - 1);
      if (low <= high) parts.push_back(same_length(std::to_string(low), std::to_string(high)));
    }
    return grammar_.choice(parts);
  }

  Fragment fraction() {
    return grammar_.sequence({grammar_.literal("."), grammar_.repeat(digit_, 1, kFractionDigits)});
  }

  // ".0", ".00", ...: the number stays the same.
  Fragment zero_fraction() {
    const auto zero = grammar_.rule(grammar_.literal("0"));
    return grammar_.sequence({grammar_.literal("."), grammar_.repeat(zero, 1, kFractionDigits)});
  }

  // A fraction above zero.
  Fragment positive_fraction() {
    const auto zero = grammar_.rule(grammar_.literal("0"));
    return grammar_.sequence({grammar_.literal("."), grammar_.repeat(zero, 0, kFractionDigits / 2),
                              grammar_.bytes('1', '9'), grammar_.repeat(digit_, 0, kFractionDigits / 2)});
  }

  Fragment exponent() {
    const Fragment sign = grammar_.optional(grammar_.any_of({{'+', '+'}, {'-', '-'}}));
    return grammar_.sequence(
        {grammar_.any_of({{'e', 'e'}, {'E', 'E'}}), sign, grammar_.repeat(digit_, 1, 2)});
  }

 private:
  // Numbers of one length, digit by digit: below, between and at the first digits of the bounds.
  Fragment same_length(std::string_view low, std::string_view high) {
    if (low.empty()) return grammar_.nothing();
    const auto rest = static_cast<std::uint32_t>(low.size() - 1);
    const std::string zeros(rest, '0');
    const std::string nines(rest, '9');
    const auto from = [&](char first, std::string_view a, std::string_view b) {
      const auto byte = static_cast<std::uint8_t>(first);
      return grammar_.sequence({grammar_.bytes(byte, byte), same_length(a, b)});
    };
    const std::string_view low_rest = low.substr(1);
    const std::string_view high_rest = high.substr(1);
    if (low_rest == zeros && high_rest == nines) {
      return grammar_.sequence(
          {grammar_.bytes(static_cast<std::uint8_t>(low[0]), static_cast<std::uint8_t>(high[0])),
           grammar_.repeat(digit_, rest, rest)});
    }
    if (low[0] == high[0]) return from(low[0], low_rest, high_rest);
    std::vector<Fragment> parts = {from(low[0], low_rest, nines), from(high[0], zeros, high_rest)};
    if (low[0] + 1 < high[0]) {
      parts.push_back(grammar_.sequence(
          {grammar_.bytes(static_cast<std::uint8_t>(low[0] + 1), static_cast<std::uint8_t>(high[0] - 1)),
           grammar_.repeat(digit_, rest, rest)}));
    }
    return grammar_.choice(parts);
  }

  Grammar& grammar_;
  Grammar::RuleId digit_;
};

// The magnitudes of one sign.
struct Magnitudes {
  std::int64_t least = 0;
  std::int64_t most = kMaxBound;
  bool least_exclusive = false;
  bool most_exclusive = false;
};

std::optional<Magnitudes> positive(const NumberBounds& bounds) {
  if (bounds.most && (*bounds.most < 0 || (*bounds.most == 0 && bounds.most_exclusive))) return std::nullopt;
  Magnitudes out;
  if (bounds.least && *bounds.least >= 0) {
    out.least = *bounds.least;
    out.least_exclusive = bounds.least_exclusive;
  }
  if (bounds.most) {
    out.most = *bounds.most;
    out.most_exclusive = bounds.most_exclusive;
  }
  return out;
}

// Those below zero, mirrored; -0 is left out.
std::optional<Magnitudes> negative(const NumberBounds& bounds) {
  NumberBounds mirrored;
  if (bounds.most) mirrored.least = -*bounds.most;
  if (bounds.least) mirrored.most = -*bounds.least;
  mirrored.least_exclusive = bounds.most_exclusive;
  mirrored.most_exclusive = bounds.least_exclusive;
  auto out = positive(mirrored);
  if (out && out->most == 0) return std::nullopt;
  if (out && out->least == 0) out->least_exclusive = true;
  return out;
}

Fragment integers(const Magnitudes& range, NumberCompiler& compiler) {
  return compiler.between(range.least + (range.least_exclusive ? 1 : 0),
                          range.most - (range.most_exclusive ? 1 : 0));
}

// Any fraction between the bounds' whole parts; at the bounds what they allow.
Fragment numbers(const Magnitudes& range, Grammar& grammar, NumberCompiler& compiler) {
  std::vector<Fragment> parts;
  const std::int64_t first = range.least + (range.least_exclusive ? 1 : 0);
  parts.push_back(
      grammar.sequence({compiler.between(first, range.most - 1), grammar.optional(compiler.fraction())}));
  if (range.least_exclusive && range.least < range.most) {
    parts.push_back(
        grammar.sequence({compiler.between(range.least, range.least), compiler.positive_fraction()}));
  }
  if (!range.most_exclusive && first <= range.most) {
    parts.push_back(grammar.sequence(
        {compiler.between(range.most, range.most), grammar.optional(compiler.zero_fraction())}));
  }
  return grammar.choice(parts);
}

template <class Digits>
Fragment both_signs(const NumberBounds& bounds, Grammar& grammar, const Digits& digits) {
  std::vector<Fragment> parts;
  if (const auto range = positive(bounds)) parts.push_back(digits(*range));
  if (const auto range = negative(bounds)) {
    parts.push_back(grammar.sequence({grammar.literal("-"), digits(*range)}));
  }
  return grammar.choice(parts);
}

}  // namespace

Fragment integer_grammar(const NumberBounds& bounds, Grammar& grammar) {
  NumberCompiler compiler(grammar);
  return both_signs(bounds, grammar, [&](const Magnitudes& range) { return integers(range, compiler); });
}

Fragment number_grammar(const NumberBounds& bounds, Grammar& grammar) {
  NumberCompiler compiler(grammar);
  const Fragment digits =
      both_signs(bounds, grammar, [&](const Magnitudes& range) { return numbers(range, grammar, compiler); });
  const bool bounded = bounds.least || bounds.most;
  return bounded ? digits : grammar.sequence({digits, grammar.optional(compiler.exponent())});
}

}  // namespace lily
