#include "cli/completion.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/flag_table.h"
#include "cli/flag_value.h"

namespace lily {
namespace {

bool takes(const Command& command, const Flag& flag) {
  return (flag.commands & command.bit) != 0 && flag.names.starts_with('-');
}

// "a|b" as "a b".
std::string words(std::string_view choices) {
  std::string text(choices);
  std::ranges::replace(text, '|', ' ');
  return text;
}

// Every name of a flag: "-n --max-tokens".
std::string names(const Flag& flag) {
  std::string text(flag.names);
  std::ranges::replace(text, ',', ' ');
  return text;
}

std::string command_names() {
  std::string text;
  for (const Command& command : commands()) text += (text.empty() ? "" : " ") + std::string(command.name);
  return text;
}

// `text` with every character of `special` behind `escape`.
std::string escaped(std::string_view text, std::string_view special, std::string_view escape) {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) out += escape;
    out += c;
  }
  return out;
}

// Inside single quotes of sh and zsh.
std::string single_quoted(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out;
}

std::string zsh_argument(const Flag& flag, std::string_view name) {
  std::string spec = fmt::format("{}[{}]", name, escaped(flag.help, "[]\\", "\\"));
  if (!is_switch(flag)) {
    spec += fmt::format(
        ":{}:{}", escaped(flag.value, ":[]", "\\"),
        flag.expected.choices.empty() ? "_files" : fmt::format("({})", words(flag.expected.choices)));
  }
  return fmt::format("    '{}' \\\n", single_quoted(spec));
}

}  // namespace

std::string bash_completion() {
  std::string flags_of;
  std::string values_of;
  for (const Command& command : commands()) {
    std::string all;
    for (const Flag& flag : flags()) {
      if (!takes(command, flag)) continue;
      all += names(flag) + " ";
      if (is_switch(flag)) continue;
      std::string patterns;  // "run:-n|run:--max-tokens"
      std::string_view rest = flag.names;
      while (!rest.empty()) {
        const std::string_view name = rest.substr(0, rest.find(','));
        patterns += fmt::format("{}{}:{}", patterns.empty() ? "" : "|", command.name, name);
        rest.remove_prefix(std::min(rest.size(), name.size() + 1));
      }
      values_of += fmt::format(
          "    {}) COMPREPLY=($(compgen {} -- \"$word\")); return ;;\n", patterns,
          flag.expected.choices.empty() ? "-f" : fmt::format("-W \"{}\"", words(flag.expected.choices)));
    }
    flags_of += fmt::format("    {}) flags=\"{}--help\" ;;\n", command.name, all);
  }
  return fmt::format(R"(# bash completion for lily, made by `lily completion bash`
_lily() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} flags=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{} --help --version" -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}:$before" in
{}  esac
  case "${{COMP_WORDS[1]}}" in
{}  esac
  case "$word" in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$word")) ;;
    *) COMPREPLY=($(compgen -f -- "$word")) ;;
  esac
}}
complete -o filenames -F _lily lily
)",
                     command_names(), values_of, flags_of);
}

std::string zsh_completion() {
  std::string text = "#compdef lily\n# made by `lily completion zsh`\n\nlocal -a commands\ncommands=(\n";
  for (const Command& command : commands()) {
    text += fmt::format("  '{}:{}'\n", command.name, single_quoted(escaped(command.summary, ":", "\\")));
  }
  text += ")\nif (( CURRENT == 2 )); then\n  _describe command commands\n  return\nfi\n";
  text += "local command=$words[2]\nshift words\n(( CURRENT-- ))\ncase $command in\n";
  for (const Command& command : commands()) {
    text += fmt::format("  {}) _arguments \\\n", command.name);
    for (const Flag& flag : flags()) {
      if (takes(command, flag)) text += zsh_argument(flag, long_name(flag));
    }
    text += "    '*:file:_files' ;;\n";
  }
  return text + "esac\n";
}

std::string fish_completion() {
  std::string text = "# fish completion for lily, made by `lily completion fish`\n";
  for (const Command& command : commands()) {
    text += fmt::format("complete -c lily -f -n __fish_use_subcommand -a {} -d '{}'\n", command.name,
                        escaped(command.summary, "'\\", "\\"));
  }
  for (const Command& command : commands()) {
    for (const Flag& flag : flags()) {
      if (!takes(command, flag)) continue;
      text += fmt::format("complete -c lily -n '__fish_seen_subcommand_from {}' -l {}", command.name,
                          long_name(flag).substr(2));
      if (!flag.names.starts_with("--")) text += fmt::format(" -s {}", flag.names.substr(1, 1));
      if (!is_switch(flag)) {
        text +=
            flag.expected.choices.empty() ? " -r" : fmt::format(" -x -a '{}'", words(flag.expected.choices));
      }
      text += fmt::format(" -d '{}'\n", escaped(flag.help, "'\\", "\\"));
    }
  }
  return text;
}

Result<void> run_completion(const Options& options) {
  if (options.completion == "bash") return console::print(bash_completion());
  if (options.completion == "zsh") return console::print(zsh_completion());
  if (options.completion == "fish") return console::print(fish_completion());
  if (options.completion == "man") return console::print(man_page());
  return fail(ErrorCode::kInvalidArgument, "completion: expected {}, found none", kCompletionKinds);
}

}  // namespace lily
