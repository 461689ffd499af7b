#include "base/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "base/units.h"

namespace lily {
namespace {

std::int64_t page_size() {
  static const std::int64_t size = ::sysconf(_SC_PAGESIZE);
  return size;
}

/// The pages that `bytes` touch.
std::span<const std::byte> whole_pages(std::span<const std::byte> bytes) {
  const auto mask = static_cast<std::uintptr_t>(page_size()) - 1;
  const std::size_t before = reinterpret_cast<std::uintptr_t>(bytes.data()) & mask;
  return {bytes.data() - before, bytes.size() + before};
}

void touch(const std::byte* data, std::int64_t size) {
#ifdef MADV_POPULATE_READ
  if (::madvise(const_cast<std::byte*>(data), static_cast<std::size_t>(size), MADV_POPULATE_READ) == 0)
    return;
#endif
  for (std::int64_t i = 0; i < size; i += page_size()) {
    static_cast<void>(*static_cast<const volatile std::byte*>(data + i));
  }
}

}  // namespace

std::int64_t usable_memory() {
  std::int64_t bytes = ::sysconf(_SC_PHYS_PAGES) * page_size();
  std::ifstream cgroup("/sys/fs/cgroup/memory.max");
  std::int64_t limit = 0;
  if (cgroup >> limit && limit > 0) bytes = std::min(bytes, limit);  // "max": no number
  return bytes;
}

MemoryUse memory_use() {
  MemoryUse use;
  std::ifstream status("/proc/self/status");
  for (std::string name; status >> name; status.ignore(1 << 16, '\n')) {
    std::int64_t kib = 0;
    if (name == "VmRSS:" && status >> kib) use.resident = kib * 1024;
    if (name == "VmHWM:" && status >> kib) use.peak = kib * 1024;
    if (name == "RssFile:" && status >> kib) use.mapped_files = kib * 1024;
  }
  return use;
}

void prefault(std::span<const std::byte> bytes, ThreadPool& pool) {
  if (bytes.empty()) return;
  const std::span<const std::byte> pages = whole_pages(bytes);
  constexpr std::int64_t kPiece = std::int64_t{16} << 20;
  const auto size = static_cast<std::int64_t>(pages.size());
  pool.parallel_tasks((size + kPiece - 1) / kPiece, [&](std::int64_t task, int) {
    touch(pages.data() + task * kPiece, std::min(kPiece, size - task * kPiece));
  });
}

Result<void> lock_in_memory(std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  const std::span<const std::byte> pages = whole_pages(bytes);
  if (::mlock(pages.data(), pages.size()) == 0) return {};
  const int error = errno;
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::string allowed =
      limit.rlim_cur == RLIM_INFINITY ? "no limit" : format_bytes(static_cast<double>(limit.rlim_cur));
  return fail(ErrorCode::kExhausted,
              "cannot lock {} in memory: {} (limit of locked memory: {}, see ulimit -l)",
              format_bytes(static_cast<double>(bytes.size())), std::strerror(error), allowed);
}

}  // namespace lily
