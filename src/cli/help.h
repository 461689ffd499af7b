// The help texts, made from the tables of flag_table.h.
#pragma once

#include <string>

#include "cli/flag_table.h"

namespace lily {

[[nodiscard]] std::string version_text();  ///< "lily 0.1.0 (d4ae48d01f2c)"
[[nodiscard]] std::string program_help();
[[nodiscard]] std::string command_help(const Command& command);

}  // namespace lily
