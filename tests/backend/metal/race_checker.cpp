#include "tests/backend/metal/race_checker.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <memory>
#include <unordered_map>
#include <vector>

// The program's image, by the linker: constants of kernels lie there.
extern "C" const char __executable_start;
extern "C" const char end;

namespace lily::testing {
namespace {

using metal::emu::Launch;
using metal::emu::self;
using metal::emu::SharedObject;
using metal::emu::Thread;

/// Who touched a byte last, and when: how many barriers its group and its SIMD-group had passed.
struct Access {
  std::uint32_t group = 0;  ///< over all launches, from 1; 0: nobody
  std::uint16_t thread = 0;
  std::uint16_t group_epoch = 0;
  std::uint16_t simd_epoch = 0;
};
enum class Readers : std::uint8_t { kOneThread, kOneSimdGroup, kOneGroup, kManyGroups };
struct Cell {
  Access write;
  Access read;
  bool atomic_write = false;
  Readers readers = Readers::kOneThread;
};

struct Region {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool read_only = false;
  bool is_shared = false;
  int index = 0;
  [[nodiscard]] bool holds(std::uintptr_t at) const { return at >= begin && at < end; }
};

/// What a hook was told.
struct Event {
  std::uintptr_t at = 0;
  unsigned size = 0;
  bool is_write = false;
  bool is_atomic = false;
  bool is_aligned = false;  ///< by its type
  std::uintptr_t pc = 0;
};

bool in(std::uintptr_t at, const void* begin, const void* past) {
  return at >= reinterpret_cast<std::uintptr_t>(begin) && at < reinterpret_cast<std::uintptr_t>(past);
}

/// "file.metal:12" of the kernel's line, where the machine has addr2line.
std::string source_line(std::uintptr_t pc) {
  Dl_info image{};
  std::array<char, 4096> program{};
  if (dladdr(reinterpret_cast<void*>(pc), &image) == 0 ||
      readlink("/proc/self/exe", program.data(), 4095) <= 0) {
    return "an unknown line";
  }
  const auto offset = pc - 1 - reinterpret_cast<std::uintptr_t>(image.dli_fbase);
  const std::string command = fmt::format("addr2line -ie '{}' {:#x} 2>/dev/null", program.data(), offset);
  std::string found;
  if (FILE* frames = popen(command.c_str(), "r"); frames != nullptr) {
    std::array<char, 1024> line{};
    while (found.empty() && std::fgets(line.data(), line.size(), frames) != nullptr) {
      const std::string_view frame = line.data();
      // The innermost frame that is the kernel's and not the shim's.
      if (frame.find("/emulator/") == std::string_view::npos) found = frame.substr(frame.rfind('/') + 1);
    }
    pclose(frames);
  }
  while (found.ends_with('\n')) found.pop_back();
  return found.empty() ? fmt::format("{:#x}", offset) : found;
}

class RaceChecker final : public metal::emu::AccessObserver {
 public:
  void begin_level() override { level_ = group_ + 1; }
  void begin_launch(const Launch& launch) override {
    bound_.clear();
    for (unsigned i = 0; i < metal::emu::kBuffers; ++i) {
      const auto& b = launch.buffers[i];
      if (b.data == nullptr) continue;
      const auto begin = reinterpret_cast<std::uintptr_t>(b.data);
      bound_.push_back(
          {.begin = begin, .end = begin + b.size, .read_only = b.read_only, .index = static_cast<int>(i)});
    }
  }
  void begin_group() override {
    ++group_;
    shared_.clear();
  }
  void add_shared(const SharedObject& object) override {
    const auto begin = reinterpret_cast<std::uintptr_t>(object.data);
    shared_.push_back({.begin = begin,
                       .end = begin + object.size,
                       .is_shared = true,
                       .index = static_cast<int>(shared_.size())});
  }

  void check(const Event& e) {
    if (self == nullptr || in(e.at, self->stack - metal::emu::kStackBytes, self->stack)) return;
    const Region* region = find(e.at);
    if (region == nullptr) {
      if (!e.is_write && in(e.at, &__executable_start, &end)) return;
      report("out of bounds, in nothing that is bound", e, nullptr);
    }
    if (e.at + e.size > region->end) report("out of bounds", e, region);
    if (e.is_write && region->read_only) report("write to a constant", e, region);
    if (e.is_aligned && e.at % e.size != 0) report("misaligned access", e, region);
    if (region->read_only) return;
    for (unsigned i = 0; i < e.size; ++i) check_byte(e, *region, cell(e.at + i));
  }

 private:
  static constexpr std::uintptr_t kPage = 4096;

  [[nodiscard]] const Region* find(std::uintptr_t at) const {
    for (const Region& r : shared_) {
      if (r.holds(at)) return &r;
    }
    for (const Region& r : bound_) {
      if (r.holds(at)) return &r;
    }
    return nullptr;
  }

  [[nodiscard]] Cell& cell(std::uintptr_t at) {
    if (at / kPage != last_page_ || last_cells_ == nullptr) {
      auto& cells = cells_[at / kPage];
      if (cells == nullptr) cells = std::make_unique<Cell[]>(kPage);
      last_page_ = at / kPage;
      last_cells_ = cells.get();
    }
    return last_cells_[at % kPage];
  }

  [[nodiscard]] Access me(const Region& region) const {
    const auto& g = *self->group;
    const auto& s = *self->simd;
    const auto group_epoch = region.is_shared ? g.threadgroup_epoch : g.device_epoch;
    const auto simd_epoch = region.is_shared ? s.threadgroup_epoch : s.device_epoch;
    LILY_CHECK(group_epoch < 65536 && simd_epoch < 65536,
               "a kernel with more barriers than the race checker counts");
    return {.group = group_,
            .thread = static_cast<std::uint16_t>(self->index),
            .group_epoch = static_cast<std::uint16_t>(group_epoch),
            .simd_epoch = static_cast<std::uint16_t>(simd_epoch)};
  }

  static unsigned simd_of(const Access& a) { return a.thread / metal::emu::kLanes; }
  /// Before this level, or before a barrier that `now` has passed: whoever did it.
  [[nodiscard]] bool is_settled(const Access& a, const Access& now) const {
    return a.group < level_ || (a.group == now.group && a.group_epoch < now.group_epoch);
  }
  [[nodiscard]] bool is_ordered(const Access& a, const Access& now, Readers who) const {
    if (is_settled(a, now)) return true;
    if (a.group != now.group || who > Readers::kOneSimdGroup) return false;
    if (who == Readers::kOneThread && a.thread == now.thread) return true;
    return simd_of(a) == simd_of(now) && a.simd_epoch < now.simd_epoch;
  }

  void check_byte(const Event& e, const Region& region, Cell& c) {
    const Access now = me(region);
    if (region.is_shared && c.write.group != group_) {
      if (!e.is_write) report("read of uninitialised memory", e, &region);
      c = Cell{};  // of another group, or of nobody
    }
    const bool both_atomic = e.is_atomic && c.atomic_write;
    if (!both_atomic && !is_ordered(c.write, now, Readers::kOneThread)) {
      report(e.is_write ? "race, write after write" : "race, read after write", e, &region);
    }
    if (e.is_write) {
      if (!e.is_atomic && !is_ordered(c.read, now, c.readers)) report("race, write after read", e, &region);
      c = {.write = now, .read = {}, .atomic_write = e.is_atomic};
    } else if (!e.is_atomic) {
      add_reader(c, now);
    }
  }

  void add_reader(Cell& c, const Access& now) const {
    if (is_settled(c.read, now)) {
      c.readers = Readers::kOneThread;
    } else if (c.read.group != now.group) {
      c.readers = Readers::kManyGroups;
    } else if (simd_of(c.read) != simd_of(now)) {
      c.readers = std::max(c.readers, Readers::kOneGroup);
    } else if (c.read.thread != now.thread) {
      c.readers = std::max(c.readers, Readers::kOneSimdGroup);
    }
    c.read = now;
  }

  [[noreturn]] static void report(const char* what, const Event& e, const Region* region) {
    const std::string line = source_line(e.pc);
    const char* access = e.is_write ? "write" : "read";
    if (region == nullptr) metal::emu::fail("%s: %u-byte %s at %s", what, e.size, access, line.c_str());
    metal::emu::fail("%s: %u-byte %s of %s %d at byte %zu of %zu, at %s", what, e.size, access,
                     region->is_shared ? "threadgroup object" : "buffer", region->index,
                     static_cast<std::size_t>(e.at - region->begin),
                     static_cast<std::size_t>(region->end - region->begin), line.c_str());
  }

  std::vector<Region> bound_;
  std::vector<Region> shared_;
  std::unordered_map<std::uintptr_t, std::unique_ptr<Cell[]>> cells_;  ///< by page
  std::uintptr_t last_page_ = 0;
  Cell* last_cells_ = nullptr;
  std::uint32_t group_ = 0;  ///< that runs
  std::uint32_t level_ = 1;  ///< the first group of this level
};

RaceChecker checker;

}  // namespace

metal::emu::AccessObserver& race_checker() {
  return checker;
}

}  // namespace lily::testing

// NOLINTBEGIN(bugprone-reserved-identifier): names and signatures are clang's.
namespace {

enum : unsigned { kRead = 0, kWrite = 1, kAtomic = 2, kAligned = 4 };

void check(const volatile void* at, std::size_t size, unsigned how, const void* pc) {
  lily::testing::checker.check({.at = reinterpret_cast<std::uintptr_t>(at),
                                .size = static_cast<unsigned>(size),
                                .is_write = (how & kWrite) != 0,
                                .is_atomic = (how & kAtomic) != 0,
                                .is_aligned = (how & kAligned) != 0,
                                .pc = reinterpret_cast<std::uintptr_t>(pc)});
}

}  // namespace

#define PC __builtin_return_address(0)
#define LILY_ACCESSES(n)                          \
  void __tsan_read##n(void* at) {                 \
    check(at, n, kRead | kAligned, PC);           \
  }                                               \
  void __tsan_write##n(void* at) {                \
    check(at, n, kWrite | kAligned, PC);          \
  }                                               \
  void __tsan_unaligned_read##n(void* at) {       \
    check(at, n, kRead, PC);                      \
  }                                               \
  void __tsan_unaligned_write##n(void* at) {      \
    check(at, n, kWrite, PC);                     \
  }                                               \
  void __tsan_read_write##n(void* at) {           \
    check(at, n, kRead | kAligned, PC);           \
    check(at, n, kWrite | kAligned, PC);          \
  }                                               \
  void __tsan_unaligned_read_write##n(void* at) { \
    check(at, n, kRead, PC);                      \
    check(at, n, kWrite, PC);                     \
  }

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
LILY_ACCESSES(1)
LILY_ACCESSES(2)
LILY_ACCESSES(4)
LILY_ACCESSES(8)
LILY_ACCESSES(16)

void* __tsan_memcpy(void* to, const void* from, std::size_t size) {
  check(from, size, kRead, PC);
  check(to, size, kWrite, PC);
  return __builtin_memcpy(to, from, size);
}
void* __tsan_memmove(void* to, const void* from, std::size_t size) {
  check(from, size, kRead, PC);
  check(to, size, kWrite, PC);
  return __builtin_memmove(to, from, size);
}
void* __tsan_memset(void* to, int value, std::size_t size) {
  check(to, size, kWrite, PC);
  return __builtin_memset(to, value, size);
}

std::uint32_t __tsan_atomic32_load(const volatile std::uint32_t* at, int) {
  check(at, 4, kAtomic, PC);
  return __atomic_load_n(at, __ATOMIC_RELAXED);
}
void __tsan_atomic32_store(volatile std::uint32_t* at, std::uint32_t value, int) {
  check(at, 4, kWrite | kAtomic, PC);
  __atomic_store_n(at, value, __ATOMIC_RELAXED);
}
int __tsan_atomic32_compare_exchange_strong(volatile std::uint32_t* at, std::uint32_t* expected,
                                            std::uint32_t value, int, int) {
  check(at, 4, kWrite | kAtomic, PC);
  return static_cast<int>(
      __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}
std::uint32_t __tsan_atomic32_compare_exchange_val(volatile std::uint32_t* at, std::uint32_t expected,
                                                   std::uint32_t value, int, int) {
  check(at, 4, kWrite | kAtomic, PC);
  __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)
