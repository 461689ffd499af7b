// The prefix cache on disk, for the next start: written whole or not at all, and trusted only if every byte
// is what was written, by the same model on the same backend.
//
//   header   magic "LILYPFX\n", version u32, 0 u32, identity u64 x 2, slot bytes, page bytes, pages,
//   checkpoints,
//            index bytes u64, checksum u64 of the header before it
//   index    for every checkpoint, the least recently used first: length u64, tokens i32 x length, numbers of
//   its
//            pages u32 x (length / 256, rounded up); then checksum u64
//   data     pages, then slots in the order of the checkpoints, each followed by its checksum u64
//
// Little-endian; checksums are XXH3.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/loaded_model.h"
#include "engine/prefix_cache.h"

namespace lily {

/// What a file's states belong to.
struct CacheIdentity {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t page_bytes = 0;

  /// A digest of the config, of every tensor's name, shape and some of its bytes, and of the backend.
  static CacheIdentity of(LoadedModel& model);
};

/// A file taken apart; the spans are views of its bytes.
struct CacheFile {
  struct Checkpoint {
    std::vector<TokenId> tokens;
    std::vector<std::uint32_t> pages;  ///< indices into CacheFile::pages
    std::span<const std::byte> slot;
  };
  std::vector<Checkpoint> checkpoints;  ///< the least recently used first
  std::vector<std::span<const std::byte>> pages;

  /// kCorrupt for bytes that are not a whole file of this version, kInvalidArgument for one of another model,
  /// backend or vocabulary (ids from 0 to `vocab` - 1).
  static Result<CacheFile> parse(std::span<const std::byte> bytes, const CacheIdentity& identity,
                                 std::int64_t vocab);
};

/// Writes all that `cache` holds, under `path` only once it is complete; only the user can read it, as it
/// holds conversations.
Result<void> save_cache(const std::filesystem::path& path, LoadedModel& model, const PrefixCache& cache);

/// Puts the file's checkpoints into `cache`, the latest ones first as far as its budget goes. kNotFound if
/// there is no file, and the errors of CacheFile::parse; then nothing has changed.
Result<void> load_cache(const std::filesystem::path& path, LoadedModel& model, PrefixCache& cache);

}  // namespace lily
