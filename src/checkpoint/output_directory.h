// A directory of files that appears under its name only once it is whole, and the files written into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/result.h"

namespace lily {

/// What to do with the directory of an interrupted run.
enum class Leftover {
  kRefuse,  ///< it is an error; a run that fails removes its own
  kResume,  ///< go on in it; a run that fails leaves it
};

/// `out`.partial, until commit() makes it `out`.
class PartialDirectory {
 public:
  /// `out` must not exist, or be an empty directory.
  static Result<PartialDirectory> create(const std::filesystem::path& out, Leftover leftover);

  PartialDirectory(PartialDirectory&& other) noexcept;
  PartialDirectory& operator=(PartialDirectory&&) = delete;
  PartialDirectory(const PartialDirectory&) = delete;
  PartialDirectory& operator=(const PartialDirectory&) = delete;
  ~PartialDirectory();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// kExhausted unless the disk has room for `bytes` more.
  [[nodiscard]] Result<void> check_room(std::int64_t bytes) const;
  Result<void> commit();

 private:
  PartialDirectory(std::filesystem::path target, std::filesystem::path path, Leftover leftover);
  std::filesystem::path target_;
  std::filesystem::path path_;  // empty: nothing to remove
  Leftover leftover_;
};

/// One file open for writing at any place, by any thread.
class OutputFile {
 public:
  /// A new file: one that is there already is an error.
  static Result<OutputFile> create(const std::filesystem::path& path);
  /// Also one that is there, whose bytes stay.
  static Result<OutputFile> open(const std::filesystem::path& path);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  [[nodiscard]] Result<void> write(std::int64_t offset, std::span<const std::byte> bytes) const;
  /// Cuts or extends (with zeros) to `bytes`.
  [[nodiscard]] Result<void> resize(std::int64_t bytes) const;
  /// Returns when all that was written is on the disk.
  [[nodiscard]] Result<void> sync() const;

 private:
  static Result<OutputFile> open(const std::filesystem::path& path, int flags);
  OutputFile(std::filesystem::path path, int fd);
  [[nodiscard]] Error failure(const char* what) const;
  std::filesystem::path path_;
  int fd_;
};

}  // namespace lily
