#include "engine/generation_config.h"

#include <nlohmann/json.hpp>

namespace lily {
namespace {

using nlohmann::json;

Result<void> read_number(const json& config, const char* name, double least, double most, float& out) {
  const auto found = config.find(name);
  if (found == config.end() || found->is_null()) return {};
  const double value = found->is_number() ? found->get<double>() : least - 1;
  if (value < least || value > most) {
    return fail(ErrorCode::kCorrupt, "{}: expected a number from {} to {}, found {}", name, least, most,
                found->dump());
  }
  out = static_cast<float>(value);
  return {};
}

// A number, or a list of them.
Result<void> read_eos(const json& config, std::vector<TokenId>& out) {
  const auto found = config.find("eos_token_id");
  if (found == config.end() || found->is_null()) return {};
  for (const json& id : found->is_array() ? *found : json::array({*found})) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > INT32_MAX) {
      return fail(ErrorCode::kCorrupt, "eos_token_id: expected token ids, found {}", found->dump());
    }
    out.push_back(id.get<TokenId>());
  }
  return {};
}

Result<void> read_sampling(const json& config, SamplingParams& out) {
  constexpr double kLarge = 1e9;
  LILY_TRY_VOID(read_number(config, "temperature", 0, kLarge, out.temperature));
  LILY_TRY_VOID(read_number(config, "top_p", 0, 1, out.top_p));
  LILY_TRY_VOID(read_number(config, "min_p", 0, 1, out.min_p));
  LILY_TRY_VOID(read_number(config, "repetition_penalty", 1e-3, 1e3, out.repetition_penalty));
  float top_k = 0;
  LILY_TRY_VOID(read_number(config, "top_k", -1, kLarge, top_k));
  out.top_k = static_cast<std::int64_t>(top_k);
  if (const auto sample = config.find("do_sample"); sample != config.end() && *sample == false) {
    out.temperature = 0;
  }
  return {};
}

}  // namespace

Result<GenerationConfig> parse_generation_config(std::string_view json_text) {
  const json config = json::parse(json_text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return fail(ErrorCode::kCorrupt, "expected a JSON object");
  GenerationConfig out;
  LILY_TRY_VOID(read_eos(config, out.eos_token_ids));
  LILY_TRY_VOID(read_sampling(config, out.sampling));
  return out;
}

}  // namespace lily
