// Any bytes as a saved prefix cache: an error, or checkpoints whose pages and slots lie inside it. Checksums
// are put right first, where the fields allow it, so that what they guard is reached.
#include <xxhash.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "engine/cache_file.h"

namespace {

constexpr lily::CacheIdentity kIdentity{.low = 1, .high = 2, .slot_bytes = 3, .page_bytes = 5};
constexpr std::size_t kHeader = 80;

std::uint64_t field(const std::vector<std::uint8_t>& file, std::size_t at) {
  std::uint64_t value = 0;
  std::memcpy(&value, file.data() + at, sizeof(value));
  return value;
}

// Writes the checksum of `size` bytes behind them; false if they are not there.
bool seal(std::vector<std::uint8_t>& file, std::size_t begin, std::uint64_t size) {
  if (size > file.size() || begin + size + 8 > file.size()) return false;
  const std::uint64_t sum = XXH3_64bits(file.data() + begin, size);
  std::memcpy(file.data() + begin + size, &sum, sizeof(sum));
  return true;
}

void seal_all(std::vector<std::uint8_t>& file) {
  if (file.size() < kHeader) return;
  std::memcpy(file.data(), "LILYPFX\n\1\0\0\0\0\0\0\0", 16);
  std::memcpy(file.data() + 16, &kIdentity, sizeof(kIdentity));
  seal(file, 0, kHeader - 8);
  const std::uint64_t index = field(file, 64);
  if (!seal(file, kHeader, index)) return;
  std::size_t at = kHeader + index + 8;
  for (std::uint64_t i = 0; i < field(file, 48) && seal(file, at, kIdentity.page_bytes); ++i) at += 13;
  while (seal(file, at, kIdentity.slot_bytes)) at += 11;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::uint8_t> file(data, data + size);
  if (size > 0 && data[0] != 'L') seal_all(file);
  const auto bytes = std::as_bytes(std::span(file));
  const auto parsed = lily::CacheFile::parse(bytes, kIdentity, 1000);
  if (!parsed.ok()) return 0;
  const auto inside = [&](std::span<const std::byte> part) {
    return part.data() >= bytes.data() && part.data() + part.size() <= bytes.data() + bytes.size();
  };
  for (const auto page : parsed->pages) LILY_CHECK(page.size() == 5 && inside(page), "page");
  for (const auto& checkpoint : parsed->checkpoints) {
    LILY_CHECK(checkpoint.slot.size() == 3 && inside(checkpoint.slot), "slot");
    LILY_CHECK(!checkpoint.tokens.empty(), "tokens");
    LILY_CHECK(checkpoint.pages.size() == (checkpoint.tokens.size() + 255) / 256, "pages");
    for (const auto page : checkpoint.pages) LILY_CHECK(page < parsed->pages.size(), "page {}", page);
  }
  return 0;
}
