#include "text/json_strings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

namespace lily {
namespace {

using Fragment = Grammar::Fragment;
using RuleId = Grammar::RuleId;

struct Format {
  std::string_view name;
  std::string_view pattern;
};
constexpr std::string_view kTime =
    R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))";
constexpr std::string_view kDate = R"(\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01]))";
constexpr std::array<Format, 7> kFormats = {
    {{"date", kDate},
     {"time", kTime},
     {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
     {"email", R"([A-Za-z0-9_%+-]+(\.[A-Za-z0-9_%+-]+)*@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+)"},
     {"ipv4", R"(((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))"},
     {"hostname",
      R"([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*)"},
     {"duration", R"(P(\d+W|\d+Y(\d+M)?(\d+D)?|\d+M(\d+D)?|\d+D|(\d+[YMD])*T(\d+H)?(\d+M)?\d+S))"}}};

}  // namespace

std::string format_pattern(std::string_view format) {
  if (format == "date-time") return fmt::format("^{}T{}$", kDate, kTime);
  const auto* const found = std::ranges::find(kFormats, format, &Format::name);
  return found == kFormats.end() ? "" : fmt::format("^{}$", found->pattern);
}

JsonStrings::JsonStrings(Grammar& grammar)
    : grammar_(grammar),
      any_(grammar.rule(quoted(grammar.repeat(character(StringSpelling::kJson), 0, Grammar::kUnbounded)))) {}

Fragment JsonStrings::counted(StringSpelling spelling, std::uint32_t least, std::uint32_t most) {
  return grammar_.repeat(character(spelling), least, most);
}

Fragment JsonStrings::quoted(Fragment inside) {
  return grammar_.sequence({grammar_.literal("\""), inside, grammar_.literal("\"")});
}

// Escapes are all JSON has, surrogates in pairs.
Fragment JsonStrings::escape() {
  const auto hex = grammar_.rule(grammar_.any_of({{'0', '9'}, {'a', 'f'}, {'A', 'F'}}));
  const auto d = [&] { return grammar_.any_of({{'d', 'd'}, {'D', 'D'}}); };
  const Fragment plain =
      grammar_.sequence({grammar_.any_of({{'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}}),
                         grammar_.repeat(hex, 3, 3)});
  const Fragment low = grammar_.sequence({d(), grammar_.bytes('0', '7'), grammar_.repeat(hex, 2, 2)});
  const Fragment pair = grammar_.sequence(
      {d(), grammar_.any_of({{'8', '9'}, {'a', 'b'}, {'A', 'B'}}), grammar_.repeat(hex, 2, 2),
       grammar_.literal("\\u"), d(), grammar_.any_of({{'c', 'f'}, {'C', 'F'}}), grammar_.repeat(hex, 2, 2)});
  const Fragment unicode = grammar_.sequence({grammar_.literal("u"), grammar_.choice({plain, low, pair})});
  std::vector<std::pair<std::uint8_t, std::uint8_t>> letters;
  for (const char c : std::string_view("\"\\/bfnrt")) {
    letters.emplace_back(static_cast<std::uint8_t>(c), static_cast<std::uint8_t>(c));
  }
  return grammar_.sequence({grammar_.literal("\\"), grammar_.choice({grammar_.any_of(letters), unicode})});
}

RuleId JsonStrings::character(StringSpelling spelling) {
  if (spelling == StringSpelling::kRaw) {
    return grammar_.rule(grammar_.choice({grammar_.bytes(0, 0x7F), grammar_.beyond_ascii()}));
  }
  return grammar_.rule(
      grammar_.choice({grammar_.any_of({{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0x7F}}),
                       grammar_.beyond_ascii(), escape()}));
}

}  // namespace lily
