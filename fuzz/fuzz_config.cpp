// Any text as config.json: an error, or sizes whose products fit, as the loader multiplies them.
#include <cstdint>

#include "base/check.h"
#include "checkpoint/config.h"

namespace {

// a * b * c as the loader does it, which must not overflow.
void check_product(std::int64_t a, std::int64_t b, std::int64_t c) {
  std::int64_t product = 0;
  LILY_CHECK(a > 0 && b > 0 && c > 0, "{} {} {}", a, b, c);
  LILY_CHECK(!__builtin_mul_overflow(a, b, &product) && !__builtin_mul_overflow(product, c, &product),
             "overflow");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto config = lily::parse_config({reinterpret_cast<const char*>(data), size});
  if (!config.ok()) return 0;
  check_product(config->num_experts, config->moe_intermediate_size, config->hidden_size * 8);
  check_product(config->vocab_size, config->hidden_size, 8);
  check_product(config->num_attention_heads, config->head_dim, config->hidden_size);
  check_product(config->max_position_embeddings, config->num_key_value_heads * config->head_dim,
                config->num_hidden_layers * 4);
  LILY_CHECK(static_cast<std::int64_t>(config->layer_types.size()) == config->num_hidden_layers, "layers");
  return 0;
}
