// Digests of files, of any size.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lily {

/// SHA-256 as 64 lower-case hexadecimal digits.
Result<std::string> file_sha256(const std::filesystem::path& path);

/// What git calls a file of these bytes: SHA-1 of "blob SIZE\0" and the bytes, 40 digits.
Result<std::string> file_git_id(const std::filesystem::path& path);

}  // namespace lily
