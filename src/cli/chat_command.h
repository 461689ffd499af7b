// The /commands of a conversation: what they are called, and what a line means.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"
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

/// Applies "temperature 0.7", or one of the other sampling flags' names, to `params` and `max_tokens`.
Result<void> set_sampling(std::string_view setting, SamplingParams& params, std::int64_t& max_tokens);

/// The settings as /set shows them, a line each.
[[nodiscard]] std::string format_sampling(const SamplingParams& params, std::int64_t max_tokens);

/// What /help prints.
[[nodiscard]] std::string chat_help();

}  // namespace lily
