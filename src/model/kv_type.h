// How the K and V rows of full-attention layers are kept.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace lily {

enum class KvType {
  kF32,
  kBf16,
  kQ8,  ///< int8 with an f32 scale for 64 values
};

/// Bytes of one K or V row of one head (256 values).
[[nodiscard]] constexpr std::int64_t kv_row_bytes(KvType type) {
  constexpr std::int64_t kValues = 256;
  switch (type) {
    case KvType::kF32:
      return kValues * 4;
    case KvType::kBf16:
      return kValues * 2;
    case KvType::kQ8:
      break;
  }
  return kValues + kValues / 64 * 4;
}

/// The option's value: "f32", "bf16" or "q8".
[[nodiscard]] std::string_view kv_type_name(KvType type);
/// `name` as kv_type_name() gives it, or "auto", which stands for `automatic`. kInvalidArgument for another.
Result<KvType> parse_kv_type(std::string_view name, KvType automatic);

}  // namespace lily
