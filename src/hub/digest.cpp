#include "hub/digest.h"

#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

namespace lily {
namespace {

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// OpenSSL fails here only without memory, or where the system forbids the algorithm.
Error openssl_failed(const std::filesystem::path& path) {
  return fail(ErrorCode::kInternal, "{}: OpenSSL cannot compute its digest", path.string());
}

Result<std::string> digest(const std::filesystem::path& path, const EVP_MD* algorithm,
                           std::string_view prefix) {
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
  if (!file) {
    return fail(ErrorCode::kIo, "{}: cannot open: {}", path.string(), std::strerror(errno));
  }
  const std::unique_ptr<EVP_MD_CTX, FreeContext> context(EVP_MD_CTX_new());
  if (!context || EVP_DigestInit_ex(context.get(), algorithm, nullptr) != 1 ||
      EVP_DigestUpdate(context.get(), prefix.data(), prefix.size()) != 1) {
    return openssl_failed(path);
  }
  std::vector<unsigned char> buffer(1 << 20);
  while (const std::size_t read = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    if (EVP_DigestUpdate(context.get(), buffer.data(), read) != 1) return openssl_failed(path);
  }
  if (std::ferror(file.get()) != 0) {
    return fail(ErrorCode::kIo, "{}: cannot read: {}", path.string(), std::strerror(errno));
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned size = 0;
  if (EVP_DigestFinal_ex(context.get(), bytes.data(), &size) != 1) return openssl_failed(path);
  std::string hex;
  for (unsigned i = 0; i < size; ++i) hex += fmt::format("{:02x}", bytes[i]);
  return hex;
}

}  // namespace

Result<std::string> file_sha256(const std::filesystem::path& path) {
  return digest(path, EVP_sha256(), "");
}

Result<std::string> file_git_id(const std::filesystem::path& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) return fail(ErrorCode::kIo, "{}: {}", path.string(), error.message());
  std::string prefix = fmt::format("blob {}", size);
  prefix += '\0';
  return digest(path, EVP_sha1(), prefix);
}

}  // namespace lily
