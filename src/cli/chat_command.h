// The /commands of a conversation: what they are called, and what a line means.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/options.h"
#include "engine/sampler.h"

namespace lily {

struct ChatCommand {
  enum class Kind { kHelp, kClear, kThink, kSystem, kSet, kRetry, kSave, kQuit };
  Kind kind = Kind::kHelp;
  bool on = false;  ///< kThink
  std::string
      argument;  ///< kSystem: the text, empty to remove it; kSave: the file; kSet: "NAME VALUE", or empty
};

/// Whether a line is a command and not a message.
[[nodiscard]] bool is_chat_command(std::string_view line);

/// The command in a line that starts with '/'. kInvalidArgument says what was expected.
Result<ChatCommand> parse_chat_command(std::string_view line);

/// Applies "temperature 0.7", or another of the generation flags' names with a value, to `options`.
Result<void> set_generation(std::string_view setting, Options& options);

/// The settings as /set shows them, a line each.
[[nodiscard]] std::string format_generation(const SamplingParams& params, const Options& options);

/// What /help prints.
[[nodiscard]] std::string chat_help();

}  // namespace lily
