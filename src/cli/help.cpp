#include "cli/help.h"

#include <fmt/core.h>

#include "checkpoint/synth_config.h"
#include "cli/flag_value.h"
#include "cli/version.h"

namespace lily {
namespace {

// "  -n, --max-tokens N": the short name, if any, in a column of its own.
std::string flag_column(const Flag& flag) {
  const bool has_short = flag.names.starts_with('-') && !flag.names.starts_with("--");
  return fmt::format("  {:<4}{} {}", has_short ? fmt::format("{},", flag.names.substr(0, 2)) : "",
                     long_name(flag), flag.value);
}

std::string positional_names(const Command& command) {
  std::string names;
  for (const Flag& flag : flags()) {
    if ((flag.commands & command.bit) == 0 || flag.names.starts_with('-')) continue;
    names += names.empty() ? "" : " ";
    names += flag.names;
  }
  return names;
}

std::string preset_lines() {
  std::string text = "\nPresets:\n";
  for (const SynthPreset& preset : synth_presets()) {
    text += fmt::format("  {:<18}{}\n", preset.name, preset.description);
  }
  return text;
}

std::string flag_lines(const Command& command) {
  std::string text;
  std::string_view group;
  for (const Flag& flag : flags()) {
    if ((flag.commands & command.bit) == 0 || !flag.names.starts_with('-')) continue;
    if (flag.group != group) text += fmt::format("\n{}:\n", group = flag.group);
    const std::string fallback = default_text(flag);
    text += fmt::format("{:<30} {}{}\n", flag_column(flag), flag.help,
                        fallback.empty() ? "" : fmt::format(" [{}]", fallback));
  }
  return text;
}

}  // namespace

std::string version_text() {
  return commit().empty() ? fmt::format("lily {}\n", version())
                          : fmt::format("lily {} ({})\n", version(), commit());
}

std::string program_help() {
  std::string text =
      "lily runs Qwen3.5 and Qwen3.6 models.\n\n"
      "Usage: lily COMMAND [MODEL] [flags]\n\n";
  for (const Command& command : commands()) {
    text += fmt::format("  {:<12}{}\n", command.name, command.summary);
  }
  return text +
         fmt::format("\n{}\n'lily COMMAND --help' lists a command's flags, 'lily --version' the version.\n",
                     model_help());
}

std::string command_help(const Command& command) {
  const std::string positional = positional_names(command);
  std::string text =
      fmt::format("lily {}: {}\n\nUsage: lily {}", command.name, command.summary, command.name);
  if (positional == "MODEL") text += " [MODEL] [flags]\n" + std::string(model_help()) + "\n";
  if (positional.ends_with("OUT")) {
    text += fmt::format(" {} [flags]\nOUT is the directory to write; it must be new or empty.\n", positional);
  }
  if (positional == "ORG/NAME") text += " ORG/NAME [flags]\n";
  if (positional == "KIND") text += " KIND\n";
  if (positional.empty()) text += " [flags]\n";
  if (!command.details.empty()) text += fmt::format("\n{}\n", command.details);
  if (command.name == "synth") text += preset_lines();
  return text + flag_lines(command);
}

}  // namespace lily
