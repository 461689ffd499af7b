// Flags in a file: a line each, `name = value`, with the names of the command line. What the command line
// says counts more.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/flag_table.h"
#include "cli/options.h"

namespace lily {

/// Reads the flags of `command` from `path` into `options`. Errors name the file, the line, what was expected
/// and what was found. Switches take true or false; `#` begins a comment; MODEL is `model`.
Result<void> read_config(const std::string& path, const Command& command, Options& options);

/// A file that read_config() takes and that gives `options` again, every flag with its help.
[[nodiscard]] std::string config_text(const Command& command, const Options& options);

}  // namespace lily
