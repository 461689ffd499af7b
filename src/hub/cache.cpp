#include "hub/cache.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "base/atomic_file.h"
#include "checkpoint/report.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

Result<fs::path> home_cache() {
  if (const std::string home = variable("HF_HOME"); !home.empty()) return fs::path(home);
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) {
    return fs::path(cache) / "huggingface";
  }
  const std::string home = variable("HOME");
  if (home.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "HF_HOME, HF_HUB_CACHE, HOME: expected one to be set, found none");
  }
  return fs::path(home) / ".cache" / "huggingface";
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
  return line;
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= 96 && text.front() != '.' && text.front() != '-' &&
         std::ranges::all_of(text, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                  c == '_' || c == '.';
         });
}

Error failed(const fs::path& path, const char* what, const std::error_code& error) {
  return fail(ErrorCode::kIo, "{}: cannot {}: {}", path.string(), what, error.message());
}

}  // namespace

Result<HubEnvironment> HubEnvironment::read() {
  HubEnvironment environment;
  environment.endpoint = variable("HF_ENDPOINT");
  if (environment.endpoint.empty()) environment.endpoint = "https://huggingface.co";
  while (environment.endpoint.ends_with('/')) environment.endpoint.pop_back();
  LILY_TRY(const fs::path home, home_cache());
  const std::string cache = variable("HF_HUB_CACHE");
  environment.cache = cache.empty() ? home / "hub" : fs::path(cache);
  environment.token = variable("HF_TOKEN");
  if (environment.token.empty()) {
    const std::string path = variable("HF_TOKEN_PATH");
    environment.token = first_line(path.empty() ? home / "token" : fs::path(path));
  }
  return environment;
}

Result<void> check_repository_name(const std::string& name) {
  const std::size_t slash = name.find('/');
  if (slash != std::string::npos && is_name(name.substr(0, slash)) && is_name(name.substr(slash + 1))) {
    return {};
  }
  return fail(ErrorCode::kInvalidArgument, "'{}': expected ORG/NAME", printable(name));
}

RepositoryCache::RepositoryCache(const fs::path& cache, const std::string& repository) {
  const std::size_t slash = repository.find('/');
  path_ = cache / fmt::format("models--{}--{}", repository.substr(0, slash), repository.substr(slash + 1));
}

Result<void> RepositoryCache::create() const {
  std::error_code error;
  fs::create_directories(path_ / "blobs", error);
  if (error) return failed(path_ / "blobs", "create", error);
  return {};
}

Result<void> RepositoryCache::link(const std::string& commit,
                                   const std::map<std::string, std::string>& names) const {
  const fs::path target = snapshot(commit);
  const fs::path made = path_ / fmt::format(".snapshot-{}-{}", commit, ::getpid());
  std::error_code error;
  const bool exists = fs::exists(target, error);
  const fs::path& directory = exists ? target : made;
  fs::create_directories(target.parent_path(), error);
  fs::create_directories(directory, error);
  if (error) return failed(directory, "create", error);
  std::vector<std::string> order;
  for (const auto& [name, id] : names) {
    if (name != "config.json") order.push_back(name);
  }
  if (names.contains("config.json")) order.emplace_back("config.json");
  for (const std::string& name : order) {
    const fs::path link = directory / name;
    if (fs::exists(link, error)) continue;
    fs::remove(link, error);  // one that leads nowhere
    fs::create_symlink(fs::path("../../blobs") / names.at(name), link, error);
    if (error) return failed(link, "link", error);
  }
  if (exists) return {};
  fs::rename(made, target, error);
  if (error) return failed(target, "rename to", error);
  return {};
}

Result<void> RepositoryCache::set_ref(const std::string& revision, const std::string& commit) const {
  const fs::path ref = path_ / "refs" / revision;
  std::error_code error;
  fs::create_directories(ref.parent_path(), error);
  if (error) return failed(ref.parent_path(), "create", error);
  return write_file(ref, commit);
}

}  // namespace lily
