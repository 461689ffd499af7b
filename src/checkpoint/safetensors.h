// The safetensors container: a header that names tensors, and their bytes. Everything the header claims is
// checked against the file before a tensor is handed out; data is aligned to nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lily {

enum class DType { kBool, kU8, kI8, kU16, kI16, kF16, kBF16, kU32, kI32, kF32, kU64, kI64, kF64 };

[[nodiscard]] std::string_view dtype_name(DType dtype);  ///< as the format spells it: "BF16"
[[nodiscard]] std::size_t dtype_size(DType dtype);       ///< bytes an element

/// A named, shaped view of bytes that somebody else owns.
struct TensorView {
  std::string name;
  DType dtype = DType::kU8;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;  ///< unaligned, shape x dtype_size bytes

  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] std::string describe() const;  ///< "BF16 [256, 32]"
};

/// Reads the header of one file. `file` is used in messages only. Refuses: a header length that lies,
/// anything but an object of {dtype, shape, data_offsets}, duplicates, gaps, overlaps, sizes that do not
/// match, trailing bytes.
Result<std::vector<TensorView>> parse_safetensors(std::string_view file, std::span<const std::byte> bytes);

}  // namespace lily
