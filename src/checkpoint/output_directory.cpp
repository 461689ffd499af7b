#include "checkpoint/output_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace lily {

namespace fs = std::filesystem;

Result<PartialDirectory> PartialDirectory::create(const fs::path& out, Leftover leftover) {
  const fs::path target = out.has_filename() ? out : out.parent_path();  // "model/" is "model"
  std::error_code error;
  if (fs::exists(target, error) && !fs::is_empty(target, error)) {
    return fail(ErrorCode::kInvalidArgument, "{}: exists, expected a new directory", target.string());
  }
  const fs::path path(target.string() + ".partial");
  const bool left = fs::exists(path, error);
  if (left && leftover == Leftover::kRefuse) {
    return fail(ErrorCode::kInvalidArgument,
                "{}: left by an interrupted run, or another one is at work: remove it", path.string());
  }
  if (!left && !fs::create_directories(path, error)) {
    return fail(ErrorCode::kIo, "{}: cannot create: {}", path.string(), error.message());
  }
  return PartialDirectory(target, path, leftover);
}

PartialDirectory::PartialDirectory(fs::path target, fs::path path, Leftover leftover)
    : target_(std::move(target)), path_(std::move(path)), leftover_(leftover) {}
PartialDirectory::PartialDirectory(PartialDirectory&& other) noexcept
    : target_(std::move(other.target_)), path_(std::exchange(other.path_, {})), leftover_(other.leftover_) {}

PartialDirectory::~PartialDirectory() {
  std::error_code ignored;
  if (!path_.empty() && leftover_ == Leftover::kRefuse) fs::remove_all(path_, ignored);
}

Result<void> PartialDirectory::check_room(std::int64_t bytes) const {
  std::error_code error;
  const fs::space_info space = fs::space(path_, error);
  if (!error && space.available < static_cast<std::uintmax_t>(bytes)) {
    return fail(ErrorCode::kExhausted, "{}: needs {:.1f} GB, the disk has {:.1f} GB left", path_.string(),
                static_cast<double>(bytes) / 1e9, static_cast<double>(space.available) / 1e9);
  }
  return {};
}

Result<void> PartialDirectory::commit() {
  std::error_code error;
  fs::rename(path_, target_, error);  // replaces an empty directory
  if (error) {
    return fail(ErrorCode::kIo, "{}: cannot rename to {}: {}", path_.string(), target_.string(),
                error.message());
  }
  path_.clear();
  return {};
}

Result<OutputFile> OutputFile::open(const fs::path& path, int flags) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
  OutputFile file(path, fd);
  if (fd < 0) return file.failure("create");
  return file;
}
Result<OutputFile> OutputFile::create(const fs::path& path) {
  return open(path, O_EXCL);
}
Result<OutputFile> OutputFile::open(const fs::path& path) {
  return open(path, 0);
}

OutputFile::OutputFile(fs::path path, int fd) : path_(std::move(path)), fd_(fd) {}
OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

Error OutputFile::failure(const char* what) const {
  const bool full = errno == ENOSPC || errno == EDQUOT;
  return fail(full ? ErrorCode::kExhausted : ErrorCode::kIo, "{}: cannot {}: {}", path_.string(), what,
              std::strerror(errno));
}

Result<void> OutputFile::write(std::int64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ::ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failure("write");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += written;
  }
  return {};
}

Result<void> OutputFile::resize(std::int64_t bytes) const {
  if (::ftruncate(fd_, bytes) != 0) return failure("resize");
  return {};
}

Result<void> OutputFile::sync() const {
  if (::fsync(fd_) != 0) return failure("sync");
  return {};
}

}  // namespace lily
