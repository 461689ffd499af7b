// Affine quantisation as MLX does it, bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "checkpoint/config.h"

namespace lily {

/// MLX's two implementations differ on exact ties and in groups without a positive number.
enum class QuantizerRounding {
  kMetal,  ///< half away from zero, and the largest of a group is at least 0
  kCpu,    ///< half to even
};

/// "metal" or "cpu".
Result<QuantizerRounding> parse_quantizer_rounding(std::string_view name);

/// One row, packed. Sizes: in * bits / 8 bytes, in / group_size each.
struct PackedRow {
  std::span<std::byte> codes;
  std::span<std::uint16_t> scales;  ///< bf16
  std::span<std::uint16_t> biases;  ///< bf16
};

/// Every group of `row` to codes, scale and bias. False if a number of it is not finite.
[[nodiscard]] bool quantize_row(std::span<const float> row, const QuantizationSpec& spec,
                                QuantizerRounding rounding, const PackedRow& out);

}  // namespace lily
