// Every command and every flag, declared once: what it is called, where its value goes, what it must be,
// which commands take it, what the help says.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "cli/options.h"

namespace lily {

struct Command {
  unsigned bit;  ///< in Flag::commands
  std::string_view name;
  std::string_view summary;  ///< one line for `lily --help`
  std::string_view details;  ///< paragraphs and examples for `lily NAME --help`
  Result<void> (*run)(const Options& options);
};

using FlagField = std::variant<bool Options::*, std::string Options::*, std::optional<std::string> Options::*,
                               std::int64_t Options::*, std::optional<std::int64_t> Options::*,
                               std::optional<std::uint64_t> Options::*, std::optional<double> Options::*,
                               std::vector<TokenId> Options::*, std::vector<std::int64_t> Options::*>;

/// What a value has to be: a number from `low` to `high`, or one of the words in `choices` ("a|b|c"; empty:
/// any text).
struct Expected {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  std::string_view choices = {};
};

struct Flag {
  std::string_view names;  ///< "-n,--max-tokens"; without dashes a positional argument
  FlagField field;
  std::string_view value;  ///< stands for the value in the help; empty for a switch
  unsigned commands;       ///< bits of the commands that take it
  std::string_view group;  ///< heading in the help
  std::string_view help;
  Expected expected = {};
};

/// The heading of the flags that say how answers are made.
inline constexpr std::string_view kGenerationGroup = "Generation";

[[nodiscard]] std::span<const Command> commands();
[[nodiscard]] std::span<const Flag> flags();

/// What MODEL may be, for help texts.
[[nodiscard]] std::string_view model_help();

}  // namespace lily
