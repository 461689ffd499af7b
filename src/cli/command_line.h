// How arguments are read by the tables of flag_table.h.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/flag_table.h"
#include "cli/options.h"

namespace lily {

/// What the user asked for: a command with its options, or a text to print.
struct Invocation {
  const Command* command = nullptr;  ///< null when `text` is the answer
  Options options = {};
  std::string text = {};
};

/// Reads the arguments after the program's name. Errors (all kInvalidArgument) name the command or flag, what
/// was expected and what was found.
Result<Invocation> parse_command_line(const std::vector<std::string>& arguments);

}  // namespace lily
