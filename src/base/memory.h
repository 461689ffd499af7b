// This machine's memory: how much there is, how much this process takes, and keeping mapped bytes in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "base/threads.h"

namespace lily {

/// Bytes this process may have resident: the machine's memory, or its cgroup's limit where that is less.
[[nodiscard]] std::int64_t usable_memory();

/// Bytes of this process that are in memory now; zeros where the system does not say.
struct MemoryUse {
  std::int64_t resident = 0;
  std::int64_t peak = 0;          ///< most that was ever resident
  std::int64_t mapped_files = 0;  ///< the part of them that belongs to files, which the system can drop
};
[[nodiscard]] MemoryUse memory_use();

/// Reads and maps every page of `bytes` with all of the pool's threads, so that nothing waits for it later.
void prefault(std::span<const std::byte> bytes, ThreadPool& pool);

/// Keeps `bytes` in memory until they are unmapped. kExhausted, with the limit, where the system refuses.
Result<void> lock_in_memory(std::span<const std::byte> bytes);

}  // namespace lily
