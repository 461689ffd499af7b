// What happens when a mapped file is cut short while it is in use: the kernel raises SIGBUS at the next read
// of what is gone. A watched file then ends the process with one line that names it and exit code 1: no core
// dump, and no silent zeros in the weights.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace lily {

/// Watches `mapped` for as long as it lives. Files beyond the first 256 are not watched, and none is if the
/// program has a SIGBUS handler of its own.
class TruncationWatch {
 public:
  TruncationWatch(const std::filesystem::path& path, std::span<const std::byte> mapped);
  TruncationWatch(TruncationWatch&& other) noexcept;
  TruncationWatch& operator=(TruncationWatch&&) = delete;
  TruncationWatch(const TruncationWatch&) = delete;
  TruncationWatch& operator=(const TruncationWatch&) = delete;
  ~TruncationWatch();

 private:
  int place_ = -1;  // in the table; -1: not watched
};

}  // namespace lily
