// What a hub says about one revision of a repository.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/http.h"

namespace lily {

struct RepositoryFile {
  std::string name;
  std::int64_t size = 0;
  std::string id;  ///< SHA-256 of a large file (64 digits), or git's id (40): its name among the blobs
  [[nodiscard]] bool is_sha256() const { return id.size() == 64; }
};

struct Repository {
  std::string commit;
  std::vector<RepositoryFile> files;  ///< those that a checkpoint is made of
};

/// Everything in the answer that becomes a path is checked. kNotFound for a repository or revision that the
/// hub does not know, or does not show to this token.
Result<Repository> find_repository(HttpClient& http, const std::string& endpoint, const std::string& name,
                                   const std::string& revision);

/// The answer of the hub's API, parsed.
Result<Repository> parse_repository(const std::string& json);

[[nodiscard]] std::string file_url(const std::string& endpoint, const std::string& repository,
                                   const std::string& commit, const std::string& file);

}  // namespace lily
