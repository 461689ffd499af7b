#include "hub/blob.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "hub/digest.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

fs::path beside(const fs::path& target, const char* suffix) {
  return target.string() + suffix;
}
fs::path partial_path(const fs::path& target) {
  return beside(target, ".lily-partial");
}
fs::path journal_path(const fs::path& target) {
  return beside(target, ".lily-chunks");
}

Error journal_failed(const fs::path& target, const char* what) {
  return fail(errno == ENOSPC ? ErrorCode::kExhausted : ErrorCode::kIo, "{}: cannot {}: {}",
              journal_path(target).string(), what, std::strerror(errno));
}

Result<void> append(int fd, const fs::path& target, std::string_view text) {
  if (::write(fd, text.data(), text.size()) != std::ssize(text)) return journal_failed(target, "write");
  return {};
}

}  // namespace

Result<PartialBlob> PartialBlob::open(const fs::path& target, const RepositoryFile& file) {
  const int journal = ::open(journal_path(target).c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (journal < 0) return journal_failed(target, "create");
  if (::flock(journal, LOCK_EX | LOCK_NB) != 0) {
    ::close(journal);
    return fail(ErrorCode::kInvalidArgument, "{}: another lily pull is at work on it", file.name);
  }
  auto output = OutputFile::open(partial_path(target));
  if (!output.ok()) {
    ::close(journal);
    return std::move(output).error();
  }
  PartialBlob blob(target, file, std::move(output).value(), journal);
  LILY_TRY_VOID(blob.read_journal());
  return blob;
}

PartialBlob::PartialBlob(fs::path target, RepositoryFile file, OutputFile output, int journal)
    : target_(std::move(target)), file_(std::move(file)), output_(std::move(output)), journal_(journal) {}
PartialBlob::PartialBlob(PartialBlob&& other) noexcept
    : target_(std::move(other.target_)),
      file_(std::move(other.file_)),
      output_(std::move(other.output_)),
      journal_(std::exchange(other.journal_, -1)),
      there_(std::move(other.there_)) {}
PartialBlob::~PartialBlob() {
  if (journal_ >= 0) ::close(journal_);
}

// "SIZE CHUNK\n", then a line a chunk. Anything else, or a file of another size beside it, starts over; a
// chunk that was noted and then lost in a crash shows in the digest.
Result<void> PartialBlob::read_journal() {
  there_.assign(static_cast<std::size_t>(chunks()), false);
  std::string text;
  std::array<char, 4096> buffer{};
  for (::ssize_t read = 0; (read = ::read(journal_, buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<std::size_t>(read));
  }
  std::error_code error;
  const bool same_size =
      fs::file_size(partial_path(target_), error) == static_cast<std::uintmax_t>(file_.size);
  const std::string header = fmt::format("{} {}\n", file_.size, kChunkBytes);
  if (same_size && text.starts_with(header)) {
    std::istringstream lines(text.substr(header.size()));
    for (std::int64_t chunk = 0; lines >> chunk;) {
      if (chunk >= 0 && chunk < chunks()) there_[static_cast<std::size_t>(chunk)] = true;
    }
    return {};
  }
  if (::ftruncate(journal_, 0) != 0) return journal_failed(target_, "empty");
  LILY_TRY_VOID(output_.resize(0));
  LILY_TRY_VOID(output_.resize(file_.size));
  return append(journal_, target_, header);
}

std::vector<std::int64_t> PartialBlob::missing() const {
  std::vector<std::int64_t> missing;
  for (std::int64_t chunk = 0; chunk < chunks(); ++chunk) {
    if (!there_[static_cast<std::size_t>(chunk)]) missing.push_back(chunk);
  }
  return missing;
}

std::int64_t PartialBlob::chunk_end(std::int64_t chunk) const {
  return std::min(file_.size, (chunk + 1) * kChunkBytes);
}

Result<bool> PartialBlob::arrived(std::int64_t chunk) {
  LILY_TRY_VOID(append(journal_, target_, fmt::format("{}\n", chunk)));
  there_[static_cast<std::size_t>(chunk)] = true;
  return std::ranges::all_of(there_, [](bool there) { return there; });
}

void PartialBlob::discard() {
  std::error_code ignored;
  fs::remove(partial_path(target_), ignored);
  fs::remove(journal_path(target_), ignored);
}

Result<void> PartialBlob::finish() {
  LILY_TRY_VOID(output_.sync());
  const fs::path partial = partial_path(target_);
  LILY_TRY(const std::string found, file_.is_sha256() ? file_sha256(partial) : file_git_id(partial));
  if (found != file_.id) {
    discard();
    return fail(ErrorCode::kCorrupt, "{}: expected {} {}, found {}: deleted", file_.name,
                file_.is_sha256() ? "SHA-256" : "git id", file_.id, found);
  }
  std::error_code error;
  fs::rename(partial, target_, error);
  if (error) {
    return fail(ErrorCode::kIo, "{}: cannot rename: {}", partial.string(), error.message());
  }
  fs::remove(journal_path(target_), error);
  return {};
}

}  // namespace lily
