// From flags and messages to a request: the chat format, the text side a model must have, sampling.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "cli/options.h"
#include "engine/loaded_model.h"
#include "engine/sampler.h"

namespace lily {

/// Messages in OpenAI's shape to ids, ready for the model's answer.
Result<std::vector<TokenId>> chat_prompt(const LoadedModel& model, const nlohmann::ordered_json& messages,
                                         bool think);

/// kNotFound, saying what else would do, when the checkpoint has none.
Result<const Tokenizer*> require_tokenizer(const LoadedModel& model);

/// --prompt as given, or standard input for "-".
Result<std::string> prompt_text(const std::string& prompt);

/// The checkpoint's recommendation, overridden by flags; a random seed unless one is given.
[[nodiscard]] SamplingParams sampling_params(const Options& options, const LoadedModel& model);

}  // namespace lily
