// The man page of completion.h, in troff's man macros.
#include <fmt/format.h>

#include "cli/completion.h"
#include "cli/flag_table.h"
#include "cli/flag_value.h"
#include "cli/version.h"

namespace lily {
namespace {

// Text as troff prints it: hyphens that are minus signs, no control line by accident.
std::string troff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) {
      out += "\\&";
      out += c;
    } else {
      out += c;
    }
  }
  return out;
}

// Prose as it flows, examples (lines that begin with two blanks) as they stand.
std::string details(std::string_view text) {
  std::string out;
  bool example = false;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const bool indented = line.starts_with("  ");
    if (indented != example) out += indented ? ".PP\n.EX\n" : ".EE\n.PP\n";
    example = indented;
    out += troff(line) + "\n";
  }
  return example ? out + ".EE\n" : out;
}

std::string flag_entry(const Flag& flag) {
  std::string names(flag.names);
  if (const std::size_t comma = names.find(','); comma != std::string::npos) names.replace(comma, 1, ", ");
  const std::string fallback = default_text(flag);
  return fmt::format(".TP\n\\fB{}\\fR{}\n{}{}\n", troff(names),
                     is_switch(flag) ? "" : fmt::format(" \\fI{}\\fR", troff(flag.value)), troff(flag.help),
                     fallback.empty() ? "" : fmt::format(" [{}]", troff(fallback)));
}

std::string command_section(const Command& command) {
  std::string text = fmt::format(".SS lily {}\n{}.\n", command.name, troff(command.summary));
  if (!command.details.empty()) text += ".PP\n" + details(command.details);
  for (const Flag& flag : flags()) {
    if ((flag.commands & command.bit) != 0 && flag.names.starts_with('-')) text += flag_entry(flag);
  }
  return text;
}

}  // namespace

std::string man_page() {
  std::string text = fmt::format(".TH LILY 1 \"\" \"lily {}\" \"User Commands\"\n", version());
  text += ".SH NAME\nlily \\- run and serve Qwen3.5 and Qwen3.6 models\n";
  text += ".SH SYNOPSIS\n.B lily\n.I COMMAND\n[\\fIMODEL\\fR] [\\fIflags\\fR]\n";
  text += fmt::format(".SH DESCRIPTION\n{}\n.SH COMMANDS\n", troff(model_help()));
  for (const Command& command : commands()) text += command_section(command);
  text +=
      ".SH EXIT STATUS\n0 on success, 1 when something failed, 2 when the arguments or the input cannot be "
      "meant,\n"
      "130 after an interrupt. Errors are one line on standard error.\n";
  return text + ".SH ENVIRONMENT\n.TP\n\\fBNO_COLOR\\fR\nwhen set, nothing is styled.\n";
}

}  // namespace lily
