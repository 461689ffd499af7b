#include "checkpoint/synth_values.h"

#include <cmath>
#include <cstring>
#include <string_view>

#include "base/bf16.h"

namespace lily {
namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);
constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15U;

// splitmix64: word `index` of the stream `key`, without making the words before it.
std::uint64_t random_bits(std::uint64_t key, std::uint64_t index) {
  std::uint64_t z = key + (index + 1) * kGolden;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

// FNV-1a.
std::uint64_t hash(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325U;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return h;
}

// [0, 1) in steps of 2^-24.
float uniform(std::uint64_t bits) {
  return static_cast<float>(bits >> 40U) * 0x1p-24F;
}

// Standard normal to within what a bf16 shows: the sum of 12 uniforms. No libm, so equal on every machine.
float normal(std::uint64_t key, std::uint64_t index) {
  std::int64_t sum = 0;
  for (std::uint64_t word = 0; word < 3; ++word) {
    const std::uint64_t bits = random_bits(key, 3 * index + word);
    for (unsigned shift = 0; shift < 64; shift += 16)
      sum += static_cast<std::int64_t>((bits >> shift) & 0xffffU);
  }
  return static_cast<float>(sum - std::int64_t{6} * 0xffff) / 65536.0F;
}

// The intended standard deviation of a module's weights.
float deviation(std::string_view module, std::int64_t in, const ModelConfig& config) {
  const float unit = 1.0F / std::sqrt(static_cast<float>(in));
  // A tied embedding has the head's: with 1, every token's likeliest successor would be itself.
  if (module.ends_with("embed_tokens")) return config.tie_word_embeddings ? 3.0F * unit : 1.0F;
  if (module.ends_with("lm_head")) return 3.0F * unit;
  if (module.ends_with("mlp.gate")) return 2.0F * unit;
  const bool writes_residual =
      module.ends_with("o_proj") || module.ends_with("out_proj") || module.ends_with("down_proj");
  return writes_residual ? unit / std::sqrt(2.0F * static_cast<float>(config.num_hidden_layers)) : unit;
}

std::string_view without_suffix(std::string_view name, std::string_view suffix) {
  name.remove_suffix(suffix.size());
  return name;
}

// Fills `out` with word(first), word(first + 1), ..., the last one perhaps in part.
template <class Word>
void fill_words(std::uint64_t first, std::span<std::byte> out, Word word) {
  const std::size_t whole = out.size() / kWordBytes;
  for (std::size_t i = 0; i < whole; ++i) {
    const std::uint64_t value = word(first + i);
    std::memcpy(out.data() + i * kWordBytes, &value, kWordBytes);
  }
  if (const std::size_t rest = out.size() % kWordBytes; rest != 0) {
    const std::uint64_t value = word(first + whole);
    std::memcpy(out.data() + whole * kWordBytes, &value, rest);
  }
}

}  // namespace

SynthTensor::SynthTensor(const TensorPlan& plan, const ModelConfig& config, std::uint64_t seed) {
  const std::string_view name = plan.name;
  std::string_view stream = name;
  if (plan.dtype == DType::kU32) {
    kind_ = Kind::kCodes;
  } else if (name.ends_with(".scales") || name.ends_with(".biases")) {
    kind_ = name.ends_with(".scales") ? Kind::kScales : Kind::kBiases;
    const std::string_view module = without_suffix(name, ".scales");
    const QuantizationSpec& spec = config.quantization->of(module);
    const auto top = static_cast<float>((1 << spec.bits) - 1);
    const float code_deviation = std::sqrt(((top + 1) * (top + 1) - 1) / 12);  // of uniform codes
    scale_ = deviation(module, plan.shape.back() * spec.group_size, config) / code_deviation;
    midpoint_ = top / 2;
    stream = module;  // a bias belongs to its scale
  } else if (name.ends_with("conv1d.weight")) {
    kind_ = Kind::kConv;
  } else if (name.ends_with("A_log")) {
    kind_ = Kind::kALog;
  } else if (name.ends_with("dt_bias")) {
    kind_ = Kind::kDtBias;
  } else {
    kind_ = Kind::kGain;
  }
  key_ = random_bits(hash(stream), seed);
}

void SynthTensor::fill(std::int64_t offset, std::span<std::byte> out) const {
  LILY_CHECK(offset % kWordBytes == 0, "offset {}", offset);
  const std::uint64_t first = static_cast<std::uint64_t>(offset) / kWordBytes;
  if (kind_ == Kind::kCodes) {
    fill_words(first, out, [this](std::uint64_t index) { return random_bits(key_, index); });
  } else {
    fill_words(first, out, [this](std::uint64_t index) {
      std::uint64_t word = 0;
      for (unsigned i = 0; i < 4; ++i) word |= std::uint64_t{element(4 * index + i)} << (16 * i);
      return word;
    });
  }
}

// Between 3/4 and 5/4 of the intended scale, of either sign (MLX uses both). Cut to 4 significant bits, so
// that 7.5 times it is a bf16 too and 4-bit weights have zero mean exactly.
std::uint16_t SynthTensor::scale(std::uint64_t index) const {
  const std::uint64_t bits = random_bits(key_, index);
  const float magnitude = scale_ * (0.75F + 0.5F * uniform(bits));
  const float cut = bf16_to_f32(f32_to_bf16(magnitude) & 0xfff0U);
  return f32_to_bf16((bits & 1U) != 0 ? -cut : cut);
}

std::uint16_t SynthTensor::element(std::uint64_t index) const {
  switch (kind_) {
    case Kind::kScales:
      return scale(index);
    case Kind::kBiases:
      return f32_to_bf16(-midpoint_ * bf16_to_f32(scale(index)));
    case Kind::kConv:
      return f32_to_bf16(0.5F * normal(key_, index));
    case Kind::kALog:
      return f32_to_bf16(std::log(0.5F + 15.5F * uniform(random_bits(key_, index))));
    case Kind::kDtBias:
      return f32_to_bf16(-4.0F + 5.0F * uniform(random_bits(key_, index)));
    case Kind::kGain:
      return f32_to_bf16(1.0F + 0.1F * normal(key_, index));
    case Kind::kCodes:
      break;
  }
  LILY_CHECK(false, "codes have no 16-bit elements");
}

}  // namespace lily
