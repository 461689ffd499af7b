// A file that appears under its name only once it is whole: written next to it, renamed at commit().
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/result.h"

namespace lily {

/// Move-only. Without commit() the destructor removes what was written. A name that already stands for
/// something other than a regular file (a pipe, /dev/stdout) is written to directly.
class AtomicFile {
 public:
  /// `mode`: permissions of a new file, less the umask. Errors name the path and what the system said.
  static Result<AtomicFile> create(const std::filesystem::path& path, unsigned mode = 0666);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  /// kExhausted when the disk is full.
  Result<void> write(std::span<const std::byte> bytes);
  Result<void> write(std::string_view text);
  /// Closes and renames; nothing may be written after it.
  Result<void> commit();

 private:
  AtomicFile(std::filesystem::path path, std::filesystem::path temporary, int descriptor);
  [[nodiscard]] Error failure(int error_number) const;
  void abandon();

  std::filesystem::path path_;
  std::filesystem::path temporary_;  // empty when writing directly
  int descriptor_ = -1;
};

/// The whole of `text` as the file `path`.
Result<void> write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace lily
