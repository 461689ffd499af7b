#include "cli/prompt.h"

#include <nlohmann/json.hpp>
#include <random>

#include "cli/console.h"

namespace lily {

Result<std::vector<TokenId>> chat_prompt(const LoadedModel& model, const nlohmann::ordered_json& messages,
                                         bool think) {
  LILY_TRY(const Tokenizer* tokenizer, require_tokenizer(model));
  const auto& chat_template = model.chat_template();
  if (!chat_template.ok()) return chat_template.error();
  const ChatTemplateOptions options{.enable_thinking = think};
  LILY_TRY(const std::string text, chat_template->render(messages, nlohmann::ordered_json::array(), options));
  return tokenizer->encode(text);
}

Result<const Tokenizer*> require_tokenizer(const LoadedModel& model) {
  if (model.tokenizer() == nullptr) {
    return fail(ErrorCode::kNotFound, "{}: no tokenizer.json, so it takes no text: give token ids (--ids)",
                model.name());
  }
  return model.tokenizer();
}

Result<std::string> prompt_text(const std::string& prompt) {
  if (prompt == "-") return console::read_stdin();
  return prompt;
}

SamplingParams sampling_params(const Options& options, const LoadedModel& model) {
  SamplingParams params = model.sampling_defaults();
  const auto take = [](const std::optional<double>& flag, float& value) {
    if (flag) value = static_cast<float>(*flag);
  };
  take(options.temperature, params.temperature);
  take(options.top_p, params.top_p);
  take(options.min_p, params.min_p);
  take(options.presence_penalty, params.presence_penalty);
  take(options.frequency_penalty, params.frequency_penalty);
  take(options.repetition_penalty, params.repetition_penalty);
  if (options.top_k) params.top_k = *options.top_k;
  params.seed = options.seed ? *options.seed : std::random_device()();
  return params;
}

}  // namespace lily
