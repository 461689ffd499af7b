// Finds the levels of a command list from what its dispatches say they read and write: a barrier stands only
// where a dispatch meets bytes that an earlier one of the same level wrote, or writes what one of them read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lily::metal {

/// kWritePart: an output that several dispatches in a row share, each its own columns.
enum class AccessKind { kRead, kWrite, kWritePart };

/// Bytes [begin, end) of a buffer. An update is a kWrite.
struct Access {
  const void* buffer = nullptr;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  AccessKind kind = AccessKind::kRead;
};

class LevelPlanner {
 public:
  /// Adds a dispatch; whether a barrier has to come before it.
  [[nodiscard]] bool add(std::span<const Access> accesses);
  /// The list ends: the next dispatch opens a level of another.
  void end();
  [[nodiscard]] std::int64_t levels() const { return levels_; }  ///< of all lists so far

 private:
  std::vector<Access> level_;  ///< of the dispatches of the open level
  std::int64_t levels_ = 0;
};

}  // namespace lily::metal
