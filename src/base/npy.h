// NumPy's .npy container, as far as this project speaks it: token ids in, float32 matrices out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"
#include "base/result.h"
#include "base/types.h"

namespace lily {

/// The ids in the bytes of an .npy file: one dimension, int32 (or int64, what NumPy makes of a list of
/// integers, as far as the values fit), little-endian. `name` is for messages, which say what was expected
/// and found.
Result<std::vector<TokenId>> parse_npy_ids(std::string_view name, std::span<const std::byte> bytes);
Result<std::vector<TokenId>> read_npy_ids(const std::filesystem::path& path);

/// One dimension of int32.
Result<void> write_npy_ids(const std::filesystem::path& path, std::span<const TokenId> ids);

/// A float32 matrix, written row block by row block; the file appears at commit().
class NpyMatrixWriter {
 public:
  static Result<NpyMatrixWriter> create(const std::filesystem::path& path, std::int64_t rows,
                                        std::int64_t columns);

  /// The next values, row by row.
  Result<void> append(std::span<const float> values);
  /// CHECKs that rows x columns values were appended.
  Result<void> commit();

 private:
  NpyMatrixWriter(AtomicFile file, std::int64_t missing) : file_(std::move(file)), missing_(missing) {}
  AtomicFile file_;
  std::int64_t missing_ = 0;
};

}  // namespace lily
