#include "cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

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

// What the help prints in brackets after a flag: its default, where it has one worth showing.
std::string default_text(const FlagField& field) {
  const Options defaults;
  if (const auto* text = std::get_if<std::string Options::*>(&field)) {
    return (defaults.**text).empty() ? "" : fmt::format(" [{}]", defaults.**text);
  }
  if (const auto* number = std::get_if<std::int64_t Options::*>(&field)) {
    return defaults.**number == 0 ? "" : fmt::format(" [{}]", defaults.**number);
  }
  if (const auto* numbers = std::get_if<std::vector<std::int64_t> Options::*>(&field)) {
    return fmt::format(" [{}]", fmt::join(defaults.**numbers, ","));
  }
  return "";
}

// "--max-tokens" of "-n,--max-tokens".
std::string_view long_name(std::string_view names) {
  return names.substr(names.find("--") == std::string_view::npos ? 0 : names.find("--"));
}

void add_flag(CLI::App& app, const Flag& flag, Options& options) {
  const std::string names(flag.names);
  const std::string help = std::string(flag.help) + default_text(flag.field);
  if (const auto* toggle = std::get_if<bool Options::*>(&flag.field)) {
    app.add_flag(names, options.**toggle, help)->group(std::string(flag.group));
    return;
  }
  const auto read = [&flag, &options](const std::string& text) {
    const auto assigned = std::visit(
        [&](auto member) -> Result<void> {
          if constexpr (std::is_same_v<decltype(member), bool Options::*>) {
            return {};
          } else {
            return assign(text, flag.expected, options.*member);
          }
        },
        flag.field);
    if (!assigned.ok())
      throw CLI::ValidationError(std::string(long_name(flag.names)), assigned.error().message);
  };
  CLI::Option* option = app.add_option_function<std::string>(names, read, help);
  option->group(std::string(flag.group))->type_name(std::string(flag.value));
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

// " (did you mean X?)", or nothing when no candidate is near.
template <class Names>
std::string suggestion(std::string_view word, const Names& names) {
  std::string_view best;
  std::size_t distance = 3;
  for (const std::string_view name : names) {
    const std::size_t d = edit_distance(word, name);
    if (d < distance) {
      distance = d;
      best = name;
    }
  }
  return best.empty() ? "" : fmt::format(" (did you mean {}?)", best);
}

Error unknown_argument(const Command& command, std::string_view argument) {
  if (!argument.starts_with('-')) {
    return fail(ErrorCode::kInvalidArgument, "{}: one argument too many: '{}'", command.name, argument);
  }
  const std::string_view name = argument.substr(0, argument.find('='));
  std::vector<std::string_view> known;
  for (const Flag& flag : flags()) {
    if ((flag.commands & command.bit) != 0) known.push_back(long_name(flag.names));
  }
  return fail(ErrorCode::kInvalidArgument, "{}: unknown flag {}{}; see 'lily {} --help'", command.name, name,
              suggestion(name, known), command.name);
}

std::string program_help() {
  std::string text =
      "lily runs Qwen3.5 and Qwen3.6 mixture-of-experts models.\n\nUsage: lily COMMAND [MODEL] [flags]\n\n";
  for (const Command& command : commands()) {
    text += fmt::format("  {:<12}{}\n", command.name, command.summary);
  }
  text +=
      fmt::format("\n{}\n'lily COMMAND --help' lists the flags of a command; 'lily --version' the version.\n",
                  model_help());
  return text;
}

const Command* find_command(std::string_view name) {
  const auto found = std::ranges::find(commands(), name, &Command::name);
  return found == commands().end() ? nullptr : &*found;
}

// CLI11 throws; this is where its exceptions end.
Result<Invocation> parse_flags(const Command& command, const std::vector<std::string>& arguments) {
  Invocation invocation{.command = &command, .options = {}, .text = {}};
  CLI::App app(std::string(command.summary), fmt::format("lily {}", command.name));
  app.get_formatter()->column_width(28);
  app.get_formatter()->label("OPTIONS", "flags");
  app.set_help_flag("-h,--help", "print this text");
  app.footer(std::string(command.details));
  app.allow_extras();
  for (const Flag& flag : flags()) {
    if ((flag.commands & command.bit) != 0) add_flag(app, flag, invocation.options);
  }
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    invocation.command = nullptr;
    invocation.text = app.help();
    return invocation;
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::kInvalidArgument, "{}: {}", command.name, error.what());
  }
  if (const auto extras = app.remaining(); !extras.empty()) return unknown_argument(command, extras.front());
  return invocation;
}

}  // namespace

Result<Invocation> parse_command_line(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "expected a command, found none: 'lily --help' lists them, 'lily chat' "
                "starts a conversation");
  }
  const std::string& first = arguments.front();
  if (first == "--help" || first == "-h" || first == "help")
    return Invocation{.command = nullptr, .options = {}, .text = program_help()};
  if (first == "--version")
    return Invocation{.command = nullptr, .options = {}, .text = "lily " LILY_VERSION "\n"};
  const Command* command = find_command(first);
  if (command == nullptr) {
    std::vector<std::string_view> names;
    for (const Command& known : commands()) names.push_back(known.name);
    return fail(ErrorCode::kInvalidArgument, "unknown command '{}'{}; 'lily --help' lists the commands",
                first, suggestion(first, names));
  }
  return parse_flags(*command, {arguments.begin() + 1, arguments.end()});
}

}  // namespace lily
