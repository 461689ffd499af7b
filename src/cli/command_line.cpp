#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>

#include "cli/config_file.h"
#include "cli/flag_value.h"
#include "cli/help.h"

namespace lily {
namespace {

bool takes(const Command& command, const Flag& flag) {
  return (flag.commands & command.bit) != 0;
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
    if (takes(command, flag)) known.push_back(long_name(flag));
  }
  return fail(ErrorCode::kInvalidArgument, "{}: unknown flag {}{}; 'lily {} --help' lists them", command.name,
              name, suggestion(name, known), command.name);
}

Error unknown_command(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Command& known : commands()) names.push_back(known.name);
  return fail(ErrorCode::kInvalidArgument, "unknown command '{}'{}; 'lily --help' lists them", name,
              suggestion(name, names));
}

void add_flag(CLI::App& app, const Flag& flag, Options& options) {
  const std::string names(flag.names);
  const auto set = [&flag, &options](const std::string& text) {
    const auto done = set_flag(flag, text, options);
    if (!done.ok()) throw CLI::ValidationError(done.error().message);
  };
  if (is_switch(flag)) {
    app.add_flag_callback(names, [set] { set(""); });
  } else {
    app.add_option_function<std::string>(names, set)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
}

// Puts the values of `arguments` into the invocation's options. CLI11 throws; this is where its exceptions
// end.
Result<void> parse_into(Invocation& invocation, const std::vector<std::string>& arguments) {
  const Command& command = *invocation.command;
  CLI::App app;
  app.set_help_flag("-h,--help");
  app.allow_extras();
  for (const Flag& flag : flags()) {
    if (takes(command, flag)) add_flag(app, flag, invocation.options);
  }
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    invocation = {.text = command_help(command)};
    return {};
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string_view what = error.what();  // "--prompt: 1 required TEXT missing"
    return fail(ErrorCode::kInvalidArgument, "{}: {}: expected a value, found none", command.name,
                what.substr(0, what.find(':')));
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::kInvalidArgument, "{}: {}", command.name, error.what());
  }
  if (const auto extras = app.remaining(); !extras.empty()) return unknown_argument(command, extras.front());
  return {};
}

// A configuration file is read first and the arguments once more over it, so that they count more.
Result<Invocation> parse_flags(const Command& command, const std::vector<std::string>& arguments) {
  Invocation invocation{.command = &command};
  LILY_TRY_VOID(parse_into(invocation, arguments));
  if (const std::string config = invocation.options.config_file; !config.empty()) {
    invocation.options = {};
    LILY_TRY_VOID(read_config(config, command, invocation.options));
    LILY_TRY_VOID(parse_into(invocation, arguments));
  }
  return invocation;
}

}  // namespace

Result<Invocation> parse_command_line(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    return fail(
        ErrorCode::kInvalidArgument,
        "expected a command, found none: 'lily --help' lists them, 'lily chat' starts a conversation");
  }
  const std::string& first = arguments.front();
  if (first == "--help" || first == "-h" || first == "help") return Invocation{.text = program_help()};
  if (first == "--version") return Invocation{.text = version_text()};
  const auto command = std::ranges::find(commands(), first, &Command::name);
  if (command == commands().end()) return unknown_command(first);
  return parse_flags(*command, {arguments.begin() + 1, arguments.end()});
}

}  // namespace lily
