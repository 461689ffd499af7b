// One text of a kernel source and the project headers that it includes: what is embedded for Apple's
// compiler, which gets a string and has no include path, and what the executor's compilation starts from.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace lily::msl {

/// `source` with every `#include "header"` replaced by that header, each header once, and #line directives
/// that keep the places. Headers are looked for beside the file that includes them, then in `folders`.
/// `#include <...>` stays.
[[nodiscard]] Result<std::string> flatten(const std::filesystem::path& source,
                                          const std::vector<std::filesystem::path>& folders);

/// The whole of a file.
[[nodiscard]] Result<std::string> read_text(const std::filesystem::path& path);

}  // namespace lily::msl
