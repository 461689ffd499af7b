#include "base/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <vector>

#include "base/units.h"

namespace lily {
namespace {

/// Some pages that nothing has touched.
class Pages {
 public:
  explicit Pages(std::size_t size)
      : size_(size),
        data_(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { ::munmap(data_, size_); }
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(data_), size_};
  }
#ifdef __linux__
  [[nodiscard]] std::size_t resident() const {
    std::vector<unsigned char> in_memory((size_ + 4095) / 4096);
    if (::mincore(data_, size_, in_memory.data()) != 0) return 0;
    std::size_t count = 0;
    for (const unsigned char page : in_memory) count += page & 1U;
    return count;
  }
#endif

 private:
  std::size_t size_;
  void* data_;
};

TEST(Memory, ThisMachineHasSomeAndThisProcessTakesLess) {
  EXPECT_GT(usable_memory(), 1 << 20);
  const MemoryUse use = memory_use();
#ifdef __linux__
  EXPECT_GT(use.resident, 0);
  EXPECT_GT(use.mapped_files, 0);
#endif
  EXPECT_LT(use.resident, usable_memory());
  EXPECT_LE(use.mapped_files, use.resident);
}

TEST(Memory, PrefaultTakesAnyRange) {
  ThreadPool pool(2);
  prefault({}, pool);
  const std::size_t size = std::size_t{40} << 20;
  const Pages pages(size);
  prefault(pages.bytes().subspan(100, size - 200), pool);
#ifdef __linux__
  EXPECT_EQ(pages.resident(), size / 4096);
#endif
}

TEST(Memory, LockingMoreThanAllowedNamesTheLimit) {
  EXPECT_TRUE(lock_in_memory({}).ok());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &none), 0);
  const Pages pages(std::size_t{1} << 20);
  const auto locked = lock_in_memory(pages.bytes());
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &before), 0);
  if (locked.ok()) GTEST_SKIP() << "NOT CHECKED: this user may lock memory without limit";
  EXPECT_EQ(locked.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(locked.error().message, ::testing::HasSubstr("limit of locked memory: 0 B"));
}

}  // namespace
}  // namespace lily
