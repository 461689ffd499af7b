#include "cli/chat_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <variant>

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

// A setting's name and where its value lives.
struct Setting {
  std::string_view name;
  std::variant<float SamplingParams::*, std::int64_t SamplingParams::*, std::uint64_t SamplingParams::*>
      field;
  double low;
  double high;
};

constexpr std::array kSettings = {
    Setting{"temperature", &SamplingParams::temperature, 0, 100},
    Setting{"top-p", &SamplingParams::top_p, 0, 1},
    Setting{"top-k", &SamplingParams::top_k, 0, 1e9},
    Setting{"min-p", &SamplingParams::min_p, 0, 1},
    Setting{"presence-penalty", &SamplingParams::presence_penalty, -2, 2},
    Setting{"frequency-penalty", &SamplingParams::frequency_penalty, -2, 2},
    Setting{"repetition-penalty", &SamplingParams::repetition_penalty, 0.01, 100},
    Setting{"seed", &SamplingParams::seed, 0, 1.8446744073709552e19},
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

template <class Number>
Result<void> parse(std::string_view text, double low, double high, Number& value) {
  Number parsed{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  const auto as_double = static_cast<double>(parsed);
  if (error != std::errc() || end != text.data() + text.size() || !(as_double >= low && as_double <= high)) {
    return fail(ErrorCode::kInvalidArgument, "expected {} from {} to {}, found '{}'",
                std::is_integral_v<Number> ? "a whole number" : "a number", low, high, text);
  }
  value = parsed;
  return {};
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

Result<void> set_sampling(std::string_view text, SamplingParams& params, std::int64_t& max_tokens) {
  const auto [name, value] = split_word(text);
  const auto named = [&, word = name](Result<void> result) -> Result<void> {
    if (!result.ok()) return std::move(result).error().in(word);
    return result;
  };
  if (name == "max-tokens") return named(parse(value, 0, 1e9, max_tokens));
  const auto* setting = std::ranges::find(kSettings, name, &Setting::name);
  if (setting == kSettings.end()) {
    return fail(ErrorCode::kInvalidArgument, "/set: no setting '{}'; /set alone shows them", name);
  }
  return named(std::visit(
      [&, word = value](auto field) { return parse(word, setting->low, setting->high, params.*field); },
      setting->field));
}

std::string format_sampling(const SamplingParams& params, std::int64_t max_tokens) {
  std::string text;
  for (const Setting& setting : kSettings) {
    std::visit([&](auto field) { text += fmt::format("{:<20}{}\n", setting.name, params.*field); },
               setting.field);
  }
  return text + fmt::format("{:<20}{}\n", "max-tokens", max_tokens);
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
