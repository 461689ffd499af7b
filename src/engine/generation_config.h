// generation_config.json: which ids end an answer, and how to sample where nobody says otherwise.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "engine/sampler.h"

namespace lily {

struct GenerationConfig {
  std::vector<TokenId> eos_token_ids;
  SamplingParams sampling;  ///< greedy when the file says do_sample: false
};

/// Parses the file's text; absent and null fields keep their defaults. kCorrupt names a field that cannot be
/// meant.
Result<GenerationConfig> parse_generation_config(std::string_view json_text);

}  // namespace lily
