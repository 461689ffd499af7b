// How names and problems from a checkpoint are put into one line: escaped, and capped so that a file with a
// million faults still makes a message somebody can read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lily {

/// `name` for a message: everything but printable ASCII becomes '?', the middle of a very long name "...".
[[nodiscard]] std::string printable(std::string_view name);

/// "a, b, c, d, e and 7 more".
[[nodiscard]] std::string list_names(const std::vector<std::string>& names);

/// One error for all of `problems` (at least one): the first few messages, and how many there are beyond
/// them.
[[nodiscard]] Error combine(const std::vector<Error>& problems);

}  // namespace lily
