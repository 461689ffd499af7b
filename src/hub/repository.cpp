#include "hub/repository.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "checkpoint/json.h"
#include "checkpoint/report.h"

namespace lily {
namespace {

using nlohmann::json;

constexpr std::size_t kMostApiBytes = 64U << 20U;

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// What the engine reads lies at the top of a repository.
bool is_wanted(std::string_view name) {
  if (name.empty() || name.front() == '.' || name.find('/') != std::string_view::npos ||
      name.find('\\') != std::string_view::npos) {
    return false;
  }
  return std::ranges::any_of(
      std::initializer_list<std::string_view>{".json", ".safetensors", ".jinja", ".txt"},
      [&](std::string_view suffix) { return name.ends_with(suffix); });
}

const json* member(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string text_of(const json* value) {
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

Result<RepositoryFile> read_file_entry(const json& entry, const std::string& name) {
  RepositoryFile file{.name = name, .size = 0, .id = text_of(member(entry, "blobId"))};
  const json* size = member(entry, "size");
  const json* lfs = member(entry, "lfs");
  if (lfs != nullptr && lfs->is_object()) {
    file.id = text_of(member(*lfs, "sha256"));
    if (const json* own = member(*lfs, "size")) size = own;
  }
  const bool large = lfs != nullptr;
  if (!is_hex(file.id, large ? 64 : 40)) {
    return fail(ErrorCode::kCorrupt, "{}: expected {} hexadecimal digits as its {}, found '{}'",
                printable(name), large ? 64 : 40, large ? "sha256" : "blobId", printable(file.id));
  }
  if (size == nullptr || !size->is_number_unsigned() ||
      size->get<std::uint64_t>() > std::uint64_t{1} << 50U) {
    return fail(ErrorCode::kCorrupt, "{}: size: expected a number of bytes, found {}", printable(name),
                size == nullptr ? "none" : printable(size->dump()));
  }
  file.size = size->get<std::int64_t>();
  return file;
}

Error unknown(const std::string& name, const std::string& revision, Error error) {
  if (error.code == ErrorCode::kNotFound) {
    return fail(ErrorCode::kNotFound, "{} at revision {}: the hub has no such model", name, revision);
  }
  if (error.message.find("HTTP 401") != std::string::npos ||
      error.message.find("HTTP 403") != std::string::npos) {
    error.message += " (a private, gated or unknown model: HF_TOKEN holds the key to it)";
  }
  return error;
}

}  // namespace

Result<Repository> parse_repository(const std::string& text) {
  LILY_TRY(const json answer, parse_json(text, {}));
  if (!answer.is_object()) return fail(ErrorCode::kCorrupt, "expected a JSON object");
  Repository repository;
  repository.commit = text_of(member(answer, "sha"));
  if (!is_hex(repository.commit, 40)) {
    return fail(ErrorCode::kCorrupt, "sha: expected 40 hexadecimal digits, found '{}'",
                printable(repository.commit));
  }
  const json* siblings = member(answer, "siblings");
  if (siblings == nullptr || !siblings->is_array()) {
    return fail(ErrorCode::kCorrupt, "siblings: expected a list of files");
  }
  bool has_config = false;
  bool has_weights = false;
  for (const json& entry : *siblings) {
    if (!entry.is_object()) return fail(ErrorCode::kCorrupt, "siblings: expected objects");
    const std::string name = text_of(member(entry, "rfilename"));
    if (!is_wanted(name)) continue;
    LILY_TRY(RepositoryFile file, read_file_entry(entry, name));
    has_config = has_config || name == "config.json";
    has_weights = has_weights || name.ends_with(".safetensors");
    repository.files.push_back(std::move(file));
  }
  if (!has_config || !has_weights) {
    return fail(ErrorCode::kUnsupported, "expected config.json and safetensors files, found {}",
                has_config ? "no weights" : "no config.json");
  }
  return repository;
}

Result<Repository> find_repository(HttpClient& http, const std::string& endpoint, const std::string& name,
                                   const std::string& revision) {
  const std::string url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", endpoint, name,
                                      percent_encoded(revision, false));
  auto answer = http.get(url, kMostApiBytes);
  if (!answer.ok()) return unknown(name, revision, std::move(answer).error());
  auto repository = parse_repository(*answer);
  if (!repository.ok()) return std::move(repository).error().in(url);
  return repository;
}

std::string file_url(const std::string& endpoint, const std::string& repository, const std::string& commit,
                     const std::string& file) {
  return fmt::format("{}/{}/resolve/{}/{}", endpoint, repository, commit, percent_encoded(file, true));
}

}  // namespace lily
