#include "cli/chat_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "cli/flag_table.h"
#include "cli/flag_value.h"

namespace lily {
namespace {

using Kind = ChatCommand::Kind;

struct Entry {
  std::string_view name;
  std::string_view argument;
  Kind kind;
  std::string_view help;
};

constexpr std::array kCommands = {
    Entry{"/help", "", Kind::kHelp, "this list"},
    Entry{"/clear", "", Kind::kClear, "forget the conversation"},
    Entry{"/retry", "", Kind::kRetry, "answer the last message again"},
    Entry{"/think", "on|off", Kind::kThink, "let the model reason before it answers"},
    Entry{"/system", "TEXT", Kind::kSystem, "set the system message (without TEXT: remove it)"},
    Entry{"/set", "NAME VALUE", Kind::kSet, "change a sampling setting (without NAME: show them)"},
    Entry{"/save", "FILE", Kind::kSave, "write the conversation as JSON"},
    Entry{"/quit", "", Kind::kQuit, "leave (also Ctrl-D)"},
};

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// The first word and the rest of `text`.
std::pair<std::string_view, std::string_view> split_word(std::string_view text) {
  const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
  return {text.substr(0, end), trim(text.substr(end))};
}

}  // namespace

bool is_chat_command(std::string_view line) {
  return trim(line).starts_with('/');
}

Result<ChatCommand> parse_chat_command(std::string_view line) {
  const auto [name, argument] = split_word(trim(line));
  const auto* entry = std::ranges::find(kCommands, name, &Entry::name);
  if (entry == kCommands.end()) {
    return fail(ErrorCode::kInvalidArgument, "unknown command {}; /help lists them", name);
  }
  if (entry->argument.empty() && !argument.empty()) {
    return fail(ErrorCode::kInvalidArgument, "{} takes no argument, found '{}'", name, argument);
  }
  if (entry->kind == Kind::kThink && argument != "on" && argument != "off") {
    return fail(ErrorCode::kInvalidArgument, "/think: expected on or off, found '{}'", argument);
  }
  if (entry->kind == Kind::kSave && argument.empty()) {
    return fail(ErrorCode::kInvalidArgument, "/save: expected a file name, found none");
  }
  return ChatCommand{entry->kind, argument == "on", std::string(argument)};
}

Result<void> set_generation(std::string_view setting, Options& options) {
  const auto [name, value] = split_word(setting);
  for (const Flag& flag : flags()) {
    if (flag.group != kGenerationGroup || is_switch(flag) || long_name(flag).substr(2) != name) continue;
    return set_flag(flag, value, options);
  }
  return fail(ErrorCode::kInvalidArgument, "/set: no setting '{}'; /set alone shows them", name);
}

std::string format_generation(const SamplingParams& params, const Options& options) {
  const auto line = [](std::string_view name, const auto& value) {
    return fmt::format("{:<20}{}\n", name, value);
  };
  return line("max-tokens", options.max_tokens) + line("temperature", params.temperature) +
         line("top-p", params.top_p) + line("top-k", params.top_k) + line("min-p", params.min_p) +
         line("presence-penalty", params.presence_penalty) +
         line("frequency-penalty", params.frequency_penalty) +
         line("repetition-penalty", params.repetition_penalty) +
         line("seed", options.seed ? fmt::format("{}", *options.seed) : "random");
}

std::string chat_help() {
  std::string text;
  for (const Entry& entry : kCommands) {
    text += fmt::format("{:<20}{}\n", fmt::format("{} {}", entry.name, entry.argument), entry.help);
  }
  return text +
         "Ctrl-C stops an answer. A line of three quotes (\"\"\") starts and ends a message of several "
         "lines.\n";
}

}  // namespace lily
