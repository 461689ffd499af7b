// A checkpoint's bytes against what somebody wrote down about them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/write_status.h"

namespace lily {

struct VerifyReport {
  std::string against;  ///< "SHA256SUMS", "the names of the hub cache's blobs", or empty: nothing was there
  std::int64_t files = 0;  ///< whose digests were compared
  std::int64_t bytes = 0;
  std::vector<Error> problems;
};

/// Compares digests with `checksums` (lines of sha256sum; if empty, SHA256SUMS in the directory, or the names
/// of the blobs that a snapshot in a hub's cache links to), and the index's total_size with the tensors there
/// are. A file that is listed and missing is a problem, one that is not listed is not. kInvalidArgument where
/// `model` is no directory.
Result<VerifyReport> verify_checkpoint(const std::string& model, const std::filesystem::path& checksums,
                                       const WriteProgress& progress = {});

}  // namespace lily
