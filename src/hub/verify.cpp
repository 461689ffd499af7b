#include "hub/verify.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "checkpoint/json.h"
#include "checkpoint/report.h"
#include "checkpoint/shards.h"
#include "hub/digest.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSums = "SHA256SUMS";
constexpr std::size_t kSha256Digits = 64;
constexpr std::size_t kGitDigits = 40;

/// File to digest.
using Digests = std::map<std::string, std::string>;

bool is_digest(std::string_view text) {
  return (text.size() == kSha256Digits || text.size() == kGitDigits) &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// "DIGEST  NAME", or "DIGEST *NAME" of a file read as binary.
Result<Digests> read_sums(const fs::path& path) {
  std::ifstream file(path);
  if (!file) return fail(ErrorCode::kNotFound, "{}: cannot open", path.string());
  Digests digests;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    const std::string digest = line.substr(0, kSha256Digits);
    if (line.size() < kSha256Digits + 3 || !is_digest(digest) || line[kSha256Digits] != ' ' ||
        (line[kSha256Digits + 1] != ' ' && line[kSha256Digits + 1] != '*')) {
      return fail(ErrorCode::kCorrupt, "{}: line {}: expected 64 hexadecimal digits, two spaces and a name",
                  path.string(), number);
    }
    std::string name = line.substr(kSha256Digits + 2);
    if (name.starts_with("./")) name.erase(0, 2);
    digests[name] = digest;
  }
  return digests;
}

// A snapshot's files are links to blobs, which are named by what they hold.
Digests blob_names(const fs::path& directory) {
  Digests digests;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const fs::path target = fs::read_symlink(entry.path(), error);
    if (error || target.parent_path().filename() != "blobs") continue;
    if (is_digest(target.filename().string())) {
      digests[entry.path().filename().string()] = target.filename().string();
    }
  }
  return digests;
}

std::int64_t bytes_of(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? 0 : static_cast<std::int64_t>(size);
}

Result<void> compare(const fs::path& directory, const Digests& digests, const WriteProgress& progress,
                     VerifyReport& report) {
  std::int64_t total = 0;
  for (const auto& [name, digest] : digests) total += bytes_of(directory / name);
  for (const auto& [name, digest] : digests) {
    if (progress && !progress(report.bytes, total)) return fail(ErrorCode::kCancelled, "cancelled");
    const fs::path path = directory / name;
    std::error_code error;
    if (!fs::exists(path, error)) {
      report.problems.push_back(fail(ErrorCode::kNotFound, "{}: listed, and missing", printable(name)));
      continue;
    }
    const bool git = digest.size() == kGitDigits;
    LILY_TRY(const std::string found, git ? file_git_id(path) : file_sha256(path));
    if (found != digest) {
      report.problems.push_back(fail(ErrorCode::kCorrupt, "{}: expected {} {}, found {}", printable(name),
                                     git ? "git id" : "SHA-256", digest, found));
    }
    ++report.files;
    report.bytes += bytes_of(path);
  }
  return {};
}

// The index names every tensor (Checkpoint::open compares them) and says how many bytes they are together.
void check_total_size(const std::string& model, VerifyReport& report) {
  constexpr const char* kIndex = "model.safetensors.index.json";
  const auto files = ModelFiles::open(model);
  if (!files.ok() || !(*files)->contains(kIndex)) return;
  const auto text = (*files)->text(kIndex);
  const auto index = text.ok() ? parse_json(*text, {}) : Result<nlohmann::json>(text.error());
  const auto checkpoint = Checkpoint::open(*files);
  if (!index.ok() || !checkpoint.ok()) return;  // `inspect` says what is wrong
  const nlohmann::json::json_pointer key("/metadata/total_size");
  if (!index->is_object() || !index->contains(key) || !index->at(key).is_number()) return;
  double bytes = 0;
  for (const auto& [name, tensor] : checkpoint->tensors()) bytes += static_cast<double>(tensor.data.size());
  const double expected = index->at(key).get<double>();
  if (bytes != expected) {
    report.problems.push_back(fail(ErrorCode::kCorrupt,
                                   "{}: total_size: {:.0f}, the tensors have {:.0f} bytes", kIndex, expected,
                                   bytes));
  }
}

}  // namespace

Result<VerifyReport> verify_checkpoint(const std::string& model, const fs::path& checksums,
                                       const WriteProgress& progress) {
  const fs::path directory(model);
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    return fail(ErrorCode::kInvalidArgument, "{}: verify: expected a checkpoint directory", model);
  }
  VerifyReport report;
  Digests digests;
  if (!checksums.empty() || fs::exists(directory / kSums, error)) {
    const fs::path sums = checksums.empty() ? directory / kSums : checksums;
    LILY_TRY(digests, read_sums(sums));
    report.against = sums.filename().string();
  } else if (digests = blob_names(directory); !digests.empty()) {
    report.against = "the names of the hub cache's blobs";
  }
  LILY_TRY_VOID(compare(directory, digests, progress, report));
  check_total_size(model, report);
  return report;
}

}  // namespace lily
