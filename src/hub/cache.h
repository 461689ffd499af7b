// The cache that Hugging Face's tools share: where it is, and how a repository lies in it.
//
//   models--ORG--NAME/blobs/ID                       bytes, named by their SHA-256 or git's id
//   models--ORG--NAME/snapshots/COMMIT/config.json   links to blobs, one directory a commit
//   models--ORG--NAME/refs/main                      the commit a branch was at
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/result.h"

namespace lily {

/// What the environment says, as huggingface_hub reads it: HF_ENDPOINT, HF_TOKEN or the file that its login
/// writes, HF_HUB_CACHE or HF_HOME or XDG_CACHE_HOME.
struct HubEnvironment {
  std::string endpoint;  ///< without a slash at the end
  std::string token;     ///< may be empty
  std::filesystem::path cache;

  static Result<HubEnvironment> read();
};

/// ORG/NAME, checked: both may become part of a path.
Result<void> check_repository_name(const std::string& name);

class RepositoryCache {
 public:
  RepositoryCache(const std::filesystem::path& cache, const std::string& repository);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path blob(const std::string& id) const { return path_ / "blobs" / id; }
  [[nodiscard]] std::filesystem::path snapshot(const std::string& commit) const {
    return path_ / "snapshots" / commit;
  }

  /// Makes the directory of blobs.
  [[nodiscard]] Result<void> create() const;
  /// `names` (file to blob id) as links of a snapshot, which appears at once or, where another tool made it
  /// before, gets what it lacks, config.json last.
  [[nodiscard]] Result<void> link(const std::string& commit,
                                  const std::map<std::string, std::string>& names) const;
  [[nodiscard]] Result<void> set_ref(const std::string& revision, const std::string& commit) const;

 private:
  std::filesystem::path path_;
};

}  // namespace lily
