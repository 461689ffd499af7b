#include "base/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace lily {

AtomicFile::AtomicFile(std::filesystem::path path, std::filesystem::path temporary, int descriptor)
    : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  if (this != &other) {
    abandon();
    path_ = std::move(other.path_);
    temporary_ = std::move(other.temporary_);
    descriptor_ = std::exchange(other.descriptor_, -1);
  }
  return *this;
}

AtomicFile::~AtomicFile() {
  abandon();
}

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& path, unsigned mode) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (std::filesystem::is_directory(status)) {
    return fail(ErrorCode::kInvalidArgument, "{}: expected a file to write, found a directory",
                path.string());
  }
  const bool direct = std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
  std::filesystem::path temporary;
  if (!direct) temporary = path.string() + ".tmp" + std::to_string(::getpid());
  const int flags = direct ? O_WRONLY | O_CLOEXEC : O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  const int descriptor = ::open((direct ? path : temporary).c_str(), flags, mode);
  AtomicFile file(path, std::move(temporary), descriptor);
  if (descriptor < 0) return file.failure(errno);
  return file;
}

Result<void> AtomicFile::write(std::span<const std::byte> bytes) {
  LILY_CHECK(descriptor_ >= 0, "{}: written to after commit()", path_.string());
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failure(errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Result<void> AtomicFile::write(std::string_view text) {
  return write(std::as_bytes(std::span(text)));
}

Result<void> AtomicFile::commit() {
  // Some file systems report a full disk only here.
  if (::close(std::exchange(descriptor_, -1)) != 0) {
    const int error_number = errno;
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
    return failure(error_number);
  }
  if (!temporary_.empty() && ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error_number = errno;
    ::unlink(temporary_.c_str());
    return failure(error_number);
  }
  return {};
}

Error AtomicFile::failure(int error_number) const {
  const ErrorCode code =
      error_number == ENOSPC || error_number == EDQUOT ? ErrorCode::kExhausted : ErrorCode::kIo;
  return fail(code, "{}: cannot write: {}", path_.string(), std::strerror(error_number));
}

void AtomicFile::abandon() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  descriptor_ = -1;
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Result<void> write_file(const std::filesystem::path& path, std::string_view text) {
  LILY_TRY(AtomicFile file, AtomicFile::create(path));
  LILY_TRY_VOID(file.write(text));
  return file.commit();
}

}  // namespace lily
