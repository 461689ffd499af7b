// One file on its way: written in chunks by several threads, over several runs if need be, and given its name
// only when its digest is right.
//
// Beside it lies a journal of the chunks that have arrived. Neither has a name that another tool would take
// for the file or for the beginning of one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <vector>

#include "base/result.h"
#include "checkpoint/output_directory.h"
#include "hub/repository.h"

namespace lily {

class PartialBlob {
 public:
  static constexpr std::int64_t kChunkBytes = std::int64_t{16} << 20U;

  /// Goes on with what an earlier run left. kInvalidArgument while another process is at it.
  static Result<PartialBlob> open(const std::filesystem::path& target, const RepositoryFile& file);

  PartialBlob(PartialBlob&& other) noexcept;
  PartialBlob& operator=(PartialBlob&&) = delete;
  PartialBlob(const PartialBlob&) = delete;
  PartialBlob& operator=(const PartialBlob&) = delete;
  ~PartialBlob();

  [[nodiscard]] const RepositoryFile& file() const { return file_; }
  /// Numbers of the chunks that have not arrived.
  [[nodiscard]] std::vector<std::int64_t> missing() const;
  [[nodiscard]] std::int64_t chunk_begin(std::int64_t chunk) const { return chunk * kChunkBytes; }
  [[nodiscard]] std::int64_t chunk_end(std::int64_t chunk) const;

  [[nodiscard]] Result<void> write(std::int64_t offset, std::span<const std::byte> bytes) const {
    return output_.write(offset, bytes);
  }
  /// Notes that a chunk is there. True once all are.
  Result<bool> arrived(std::int64_t chunk);
  /// Checks the digest and gives the file its name; a wrong one is deleted, so that the next run starts over.
  Result<void> finish();

 private:
  PartialBlob(std::filesystem::path target, RepositoryFile file, OutputFile output, int journal);
  [[nodiscard]] std::int64_t chunks() const { return (file_.size + kChunkBytes - 1) / kChunkBytes; }
  Result<void> read_journal();
  void discard();

  std::filesystem::path target_;
  RepositoryFile file_;
  OutputFile output_;
  int journal_;
  std::vector<bool> there_;
};

}  // namespace lily
