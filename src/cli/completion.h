// Files for shells and manuals, made from the tables of flag_table.h: completions and the man page.
#pragma once

#include <string>
#include <string_view>

namespace lily {

/// What `lily completion KIND` knows, for help texts and errors: "bash|zsh|fish|man".
inline constexpr std::string_view kCompletionKinds = "bash|zsh|fish|man";

[[nodiscard]] std::string bash_completion();
[[nodiscard]] std::string zsh_completion();
[[nodiscard]] std::string fish_completion();
/// lily(1), for man.
[[nodiscard]] std::string man_page();

}  // namespace lily
