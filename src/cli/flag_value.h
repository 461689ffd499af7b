// A flag's value: from the text on the command line to its place in Options.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/flag_table.h"
#include "cli/options.h"

namespace lily {

/// Reads `text` as the flag's kind of value and stores it. kInvalidArgument names the flag, what was expected
/// and what was found. For a switch `text` is not looked at.
Result<void> set_flag(const Flag& flag, std::string_view text, Options& options);

/// "--max-tokens" of "-n,--max-tokens".
[[nodiscard]] std::string_view long_name(const Flag& flag);

[[nodiscard]] bool is_switch(const Flag& flag);

/// The flag's value in a fresh Options, where that says something; else empty.
[[nodiscard]] std::string default_text(const Flag& flag);

}  // namespace lily
