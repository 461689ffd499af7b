#include "engine/cache_file.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <set>

#include "base/atomic_file.h"
#include "base/mmap.h"

namespace lily {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is the memory's");

constexpr std::array<char, 8> kMagic{'L', 'I', 'L', 'Y', 'P', 'F', 'X', '\n'};
constexpr std::uint32_t kVersion = 1;

struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t zero = 0;
  CacheIdentity identity;
  std::uint64_t pages = 0;
  std::uint64_t checkpoints = 0;
  std::uint64_t index_bytes = 0;
  std::uint64_t checksum = 0;
};
static_assert(sizeof(Header) == 80);

std::uint64_t checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::uint64_t header_checksum(const Header& header) {
  return checksum(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, checksum)));
}

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

std::uint64_t pages_for(std::uint64_t tokens) {
  return (tokens + kKvPageTokens - 1) / kKvPageTokens;
}

/// Takes a file's bytes from the front.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : rest_(bytes) {}

  /// The next `size` bytes; an error if there are not so many.
  Result<std::span<const std::byte>> take(std::uint64_t size) {
    if (size > rest_.size()) {
      return fail(ErrorCode::kCorrupt, "expected {} more bytes, found {}", size, rest_.size());
    }
    const auto taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }
  template <class T>
  Result<T> value() {
    LILY_TRY(const auto bytes, take(sizeof(T)));
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  template <class T>
  Result<std::vector<T>> values(std::uint64_t count) {
    if (count > rest_.size() / sizeof(T)) {
      return fail(ErrorCode::kCorrupt, "expected {} more values, found {} bytes", count, rest_.size());
    }
    LILY_TRY(const auto bytes, take(count * sizeof(T)));
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), bytes.data(), bytes.size());  // no elements: no address either
    return values;
  }
  /// `size` bytes and the checksum behind them.
  Result<std::span<const std::byte>> checked(std::uint64_t size, std::string_view what) {
    LILY_TRY(const auto bytes, take(size));
    LILY_TRY(const auto expected, value<std::uint64_t>());
    if (checksum(bytes) != expected)
      return fail(ErrorCode::kCorrupt, "the {}'s checksum does not match", what);
    return bytes;
  }
  [[nodiscard]] std::size_t left() const { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
};

Result<Header> read_header(Cursor& file, const CacheIdentity& identity) {
  LILY_TRY(const auto header, file.value<Header>());
  if (header.magic != kMagic) return fail(ErrorCode::kCorrupt, "not a prefix cache");
  if (header.version != kVersion) {
    return fail(ErrorCode::kCorrupt, "expected version {}, found {}", kVersion, header.version);
  }
  if (header.checksum != header_checksum(header)) {
    return fail(ErrorCode::kCorrupt, "the header's checksum does not match");
  }
  if (header.identity.low != identity.low || header.identity.high != identity.high ||
      header.identity.slot_bytes != identity.slot_bytes ||
      header.identity.page_bytes != identity.page_bytes) {
    return fail(ErrorCode::kInvalidArgument, "belongs to another model, backend or version of this program");
  }
  return header;
}

Result<CacheFile::Checkpoint> read_checkpoint(Cursor& index, std::uint64_t pages, std::int64_t vocab) {
  CacheFile::Checkpoint checkpoint;
  LILY_TRY(const auto length, index.value<std::uint64_t>());
  LILY_TRY(checkpoint.tokens, index.values<TokenId>(length));
  LILY_TRY(checkpoint.pages, index.values<std::uint32_t>(pages_for(length)));
  const auto is_bad = [&](TokenId id) { return id < 0 || id >= vocab; };
  if (checkpoint.tokens.empty() || std::ranges::any_of(checkpoint.tokens, is_bad)) {
    return fail(ErrorCode::kCorrupt, "a checkpoint without tokens, or with ids that are none");
  }
  std::set<std::uint32_t> distinct(checkpoint.pages.begin(), checkpoint.pages.end());
  if (*distinct.rbegin() >= pages || distinct.size() != checkpoint.pages.size()) {
    return fail(ErrorCode::kCorrupt, "a checkpoint with pages that are not there");
  }
  return checkpoint;
}

}  // namespace

CacheIdentity CacheIdentity::of(LoadedModel& model) {
  XXH3_state_t* state = XXH3_createState();
  XXH3_128bits_reset(state);
  const auto add = [&](const void* data, std::size_t size) {
    XXH3_128bits_update(state, &size, sizeof(size));
    XXH3_128bits_update(state, data, size);
  };
  constexpr std::size_t kSample = 256;  // bytes of either end of a tensor: reading all would take a minute
  for (const auto& [name, tensor] : model.checkpoint().tensors()) {
    const std::string shape = tensor.describe();
    const auto sample = std::min(kSample, tensor.data.size());
    add(name.data(), name.size());
    add(shape.data(), shape.size());
    add(tensor.data.data(), sample);
    add(tensor.data.last(sample).data(), sample);
  }
  const std::string backend = model.backend().description();
  add(backend.data(), backend.size());
  add(&kKvPageTokens, sizeof(kKvPageTokens));
  const XXH128_hash_t digest = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  return {digest.low64, digest.high64, static_cast<std::uint64_t>(model.backend().slot_bytes()),
          static_cast<std::uint64_t>(model.backend().page_bytes())};
}

Result<CacheFile> CacheFile::parse(std::span<const std::byte> bytes, const CacheIdentity& identity,
                                   std::int64_t vocab) {
  Cursor file(bytes);
  LILY_TRY(const Header header, read_header(file, identity));
  LILY_TRY(const auto index_bytes, file.checked(header.index_bytes, "index"));
  Cursor index(index_bytes);
  CacheFile out;
  for (std::uint64_t i = 0; i < header.checkpoints; ++i) {
    LILY_TRY(auto checkpoint, read_checkpoint(index, header.pages, vocab));
    out.checkpoints.push_back(std::move(checkpoint));
  }
  if (index.left() > 0) return fail(ErrorCode::kCorrupt, "{} bytes too many in the index", index.left());
  for (std::uint64_t i = 0; i < header.pages; ++i) {
    LILY_TRY(const auto page, file.checked(identity.page_bytes, "page"));
    out.pages.push_back(page);
  }
  for (Checkpoint& checkpoint : out.checkpoints) {
    LILY_TRY(checkpoint.slot, file.checked(identity.slot_bytes, "slot"));
  }
  if (file.left() > 0) return fail(ErrorCode::kCorrupt, "{} bytes too many", file.left());
  return out;
}

Result<void> save_cache(const std::filesystem::path& path, LoadedModel& model, const PrefixCache& cache) {
  Header header{.identity = CacheIdentity::of(model)};
  std::map<PageId, std::uint32_t> numbers;  // of the pages in the file
  std::vector<PageId> pages;
  std::vector<std::byte> index;
  const auto put = [&](std::span<const std::byte> bytes) {
    index.insert(index.end(), bytes.begin(), bytes.end());
  };
  const auto entries = cache.entries();
  for (const auto& entry : entries) {
    put(bytes_of(std::uint64_t{entry.tokens.size()}));
    put(std::as_bytes(std::span(entry.tokens)));
    for (const PageId page : entry.sequence->pages()) {
      const auto [number, is_new] = numbers.try_emplace(page, static_cast<std::uint32_t>(pages.size()));
      if (is_new) pages.push_back(page);
      put(bytes_of(number->second));
    }
  }
  header.pages = pages.size();
  header.checkpoints = entries.size();
  header.index_bytes = index.size();
  header.checksum = header_checksum(header);

  LILY_TRY(AtomicFile file, AtomicFile::create(path, 0600));
  LILY_TRY_VOID(file.write(bytes_of(header)));
  const auto write_checked = [&](std::span<const std::byte> bytes) -> Result<void> {
    LILY_TRY_VOID(file.write(bytes));
    return file.write(bytes_of(checksum(bytes)));
  };
  LILY_TRY_VOID(write_checked(index));
  std::vector<std::byte> block(header.identity.page_bytes);
  for (const PageId page : pages) {
    model.backend().read_page(page, block);
    LILY_TRY_VOID(write_checked(block));
  }
  block.resize(header.identity.slot_bytes);
  for (const auto& entry : entries) {
    model.backend().read_slot(entry.sequence->slot(), block);
    LILY_TRY_VOID(write_checked(block));
  }
  return file.commit();
}

namespace {

/// The latest checkpoints that fit, in the file's order.
std::vector<const CacheFile::Checkpoint*> choose(const CacheFile& file, const CacheIdentity& identity,
                                                 const StatePool& pool, std::int64_t budget) {
  std::vector<const CacheFile::Checkpoint*> chosen;
  std::set<std::uint32_t> pages;
  for (auto checkpoint = file.checkpoints.rbegin(); checkpoint != file.checkpoints.rend(); ++checkpoint) {
    auto with = pages;
    with.insert(checkpoint->pages.begin(), checkpoint->pages.end());
    const auto bytes = (chosen.size() + 1) * identity.slot_bytes + with.size() * identity.page_bytes;
    if (std::ssize(chosen) >= pool.free_slots() || std::ssize(with) > pool.free_pages() ||
        bytes > static_cast<std::uint64_t>(budget)) {
      break;
    }
    pages = std::move(with);
    chosen.push_back(&*checkpoint);
  }
  std::ranges::reverse(chosen);
  return chosen;
}

}  // namespace

Result<void> load_cache(const std::filesystem::path& path, LoadedModel& model, PrefixCache& cache) {
  LILY_TRY(const MappedFile mapped, MappedFile::open(path));
  const CacheIdentity identity = CacheIdentity::of(model);
  auto parsed = CacheFile::parse(mapped.bytes(), identity, model.shapes().vocab);
  if (!parsed.ok()) return std::move(parsed).error().in(path.string());
  StatePool& pool = model.pool();
  std::map<std::uint32_t, PageId> pages;  // that are in place
  for (const auto* checkpoint : choose(*parsed, identity, pool, cache.stats().budget)) {
    std::vector<PageId> own;
    for (const std::uint32_t number : checkpoint->pages) {
      const auto known = pages.find(number);
      if (known != pages.end()) {
        pool.share_page(known->second);
      } else {
        LILY_TRY(pages[number], pool.allocate_page());
        model.backend().write_page(pages[number], parsed->pages[number]);
      }
      own.push_back(pages[number]);
    }
    LILY_TRY(const SlotId slot, pool.allocate_slot());
    model.backend().write_slot(slot, checkpoint->slot);
    cache.insert(checkpoint->tokens,
                 Sequence::adopt(pool, std::ssize(checkpoint->tokens), std::move(own), slot));
  }
  return {};
}

}  // namespace lily
