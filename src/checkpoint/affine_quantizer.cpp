#include "checkpoint/affine_quantizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/bf16.h"
#include "base/check.h"
#include "checkpoint/report.h"

namespace lily {
namespace {

constexpr std::size_t kMostGroup = 128;

struct Affine {
  float scale;
  float bias;
};

// The end of the range that is farther from zero is met exactly, and zero too if the range holds it.
Affine fit(float low, float high, float levels, QuantizerRounding rounding) {
  const bool low_is_edge = std::abs(low) > std::abs(high);
  float scale = std::max((high - low) / levels, 1e-7F);
  if (!low_is_edge) scale = -scale;
  const float edge = low_is_edge ? low : high;
  const float code =
      rounding == QuantizerRounding::kMetal ? std::round(edge / scale) : std::rint(edge / scale);
  if (code == 0) return {scale, 0};
  return {edge / code, edge};
}

// Codes come from the scale and bias before they are rounded to bf16. Both ways of rounding in terms the
// compiler turns into vector code: quotients lie between about 0 and `levels`.
void encode(std::span<const float> group, const Affine& affine, float levels, QuantizerRounding rounding,
            std::span<std::uint8_t> codes) {
  constexpr float kToInteger = 12582912.0F;  // 1.5 * 2^23: adding it rounds to nearest even
  for (std::size_t i = 0; i < group.size(); ++i) {
    const float quotient = std::max((group[i] - affine.bias) / affine.scale, 0.0F);
    const auto whole = static_cast<float>(static_cast<std::int32_t>(quotient));
    const float rounded = rounding == QuantizerRounding::kMetal
                              ? whole + (quotient - whole >= 0.5F ? 1.0F : 0.0F)
                              : (quotient + kToInteger) - kToInteger;
    codes[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(std::min(rounded, levels)));
  }
}

// Eight codes fill `bits` bytes, lowest bits first.
void pack(std::span<const std::uint8_t> codes, int bits, std::byte* out) {
  for (std::size_t i = 0; i < codes.size(); i += 8, out += bits) {
    std::uint64_t word = 0;
    for (std::size_t k = 0; k < 8; ++k) {
      word |= std::uint64_t{codes[i + k]} << (k * static_cast<std::size_t>(bits));
    }
    std::memcpy(out, &word, static_cast<std::size_t>(bits));
  }
}

}  // namespace

Result<QuantizerRounding> parse_quantizer_rounding(std::string_view name) {
  if (name == "metal") return QuantizerRounding::kMetal;
  if (name == "cpu") return QuantizerRounding::kCpu;
  return fail(ErrorCode::kInvalidArgument, "rounding: expected metal or cpu, found '{}'", printable(name));
}

bool quantize_row(std::span<const float> row, const QuantizationSpec& spec, QuantizerRounding rounding,
                  const PackedRow& out) {
  const auto size = static_cast<std::size_t>(spec.group_size);
  LILY_CHECK(row.size() % size == 0 && size <= kMostGroup, "{} numbers in groups of {}", row.size(), size);
  const auto levels = static_cast<float>((1 << spec.bits) - 1);
  std::array<std::uint8_t, kMostGroup> codes{};
  for (std::size_t g = 0; g < row.size() / size; ++g) {
    const auto group = row.subspan(g * size, size);
    float low = group.front();
    float high = rounding == QuantizerRounding::kMetal ? 0.0F : low;
    float sum = 0;  // shows a NaN, which compares false with everything
    for (const float w : group) {
      low = std::min(low, w);
      high = std::max(high, w);
      sum += std::abs(w);
    }
    if (!std::isfinite(sum)) return false;
    const Affine affine = fit(low, high, levels, rounding);
    encode(group, affine, levels, rounding, std::span(codes).first(size));
    pack(std::span(codes).first(size), spec.bits,
         out.codes.data() + g * size * static_cast<std::size_t>(spec.bits) / 8);
    out.scales[g] = f32_to_bf16(affine.scale);
    out.biases[g] = f32_to_bf16(affine.bias);
  }
  return true;
}

}  // namespace lily
