#include "cli/flag_value.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "cli/token_input.h"

namespace lily {
namespace {

Error expected(std::string_view what, std::string_view found) {
  return fail(ErrorCode::kInvalidArgument, "expected {}, found '{}'", what, found);
}

// "a whole number from 0 to 100"
std::string describe(std::string_view kind, const Expected& limits) {
  if (std::isfinite(limits.high)) return fmt::format("{} from {} to {}", kind, limits.low, limits.high);
  if (std::isfinite(limits.low)) return fmt::format("{} of at least {}", kind, limits.low);
  return std::string(kind);
}

template <class Number>
Result<Number> parse_number(std::string_view text, std::string_view kind, const Expected& limits) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const auto as_double = static_cast<double>(value);
  if (error != std::errc() || end != text.data() + text.size() || !(as_double >= limits.low) ||
      !(as_double <= limits.high)) {
    return expected(describe(kind, limits), text);
  }
  return value;
}

Result<std::vector<std::int64_t>> parse_numbers(std::string_view text, const Expected& limits) {
  std::vector<std::int64_t> numbers;
  for (;;) {
    const std::string_view item = text.substr(0, text.find(','));
    LILY_TRY(const std::int64_t number, parse_number<std::int64_t>(item, "a whole number", limits));
    numbers.push_back(number);
    if (item.size() == text.size()) return numbers;
    text.remove_prefix(item.size() + 1);
  }
}

bool is_choice(std::string_view choices, std::string_view word) {
  for (;;) {
    const std::string_view choice = choices.substr(0, choices.find('|'));
    if (choice == word) return true;
    if (choice.size() == choices.size()) return false;
    choices.remove_prefix(choice.size() + 1);
  }
}

// One overload for each kind of field; the last argument is where the value goes.
Result<void> assign(std::string_view text, const Expected& limits, std::string& value) {
  if (!limits.choices.empty() && !is_choice(limits.choices, text)) return expected(limits.choices, text);
  value = text;
  return {};
}
Result<void> assign(std::string_view text, const Expected&, std::optional<std::string>& value) {
  value = std::string(text);
  return {};
}
Result<void> assign(std::string_view text, const Expected& limits, std::int64_t& value) {
  if (!limits.choices.empty() && !is_choice(limits.choices, text)) return expected(limits.choices, text);
  LILY_TRY(value, parse_number<std::int64_t>(text, "a whole number", limits));
  return {};
}
template <class Number>
Result<void> assign(std::string_view text, const Expected& limits, std::optional<Number>& value) {
  LILY_TRY(value,
           parse_number<Number>(text, std::is_integral_v<Number> ? "a whole number" : "a number", limits));
  return {};
}
Result<void> assign(std::string_view text, const Expected&, std::vector<TokenId>& value) {
  LILY_TRY(value, parse_ids(text));
  if (value.empty()) return expected("token ids like 1,2,3", text);
  return {};
}
Result<void> assign(std::string_view text, const Expected& limits, std::vector<std::int64_t>& value) {
  LILY_TRY(value, parse_numbers(text, limits));
  return {};
}

Result<void> assign(std::string_view, const Expected&, bool& value) {
  value = true;
  return {};
}

}  // namespace

Result<void> set_flag(const Flag& flag, std::string_view text, Options& options) {
  auto assigned =
      std::visit([&](auto member) { return assign(text, flag.expected, options.*member); }, flag.field);
  if (!assigned.ok()) return std::move(assigned).error().in(long_name(flag));
  return {};
}

std::string_view long_name(const Flag& flag) {
  const std::size_t dashes = flag.names.find("--");
  return flag.names.substr(dashes == std::string_view::npos ? 0 : dashes);
}

bool is_switch(const Flag& flag) {
  return std::holds_alternative<bool Options::*>(flag.field);
}

std::string default_text(const Flag& flag) {
  const Options defaults;
  if (const auto* text = std::get_if<std::string Options::*>(&flag.field)) return defaults.**text;
  if (const auto* number = std::get_if<std::int64_t Options::*>(&flag.field)) {
    return defaults.**number == 0 ? "" : fmt::format("{}", defaults.**number);
  }
  return "";
}

}  // namespace lily
