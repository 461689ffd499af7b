// lily run: one prompt, one answer, streamed to stdout.
#include <nlohmann/json.hpp>

#include "cli/answer.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "cli/open.h"
#include "cli/prompt.h"
#include "cli/token_input.h"

namespace lily {
namespace {

Result<void> check_sources(const Options& options) {
  const int given =
      (options.prompt ? 1 : 0) + (options.ids.empty() ? 0 : 1) + (options.ids_file.empty() ? 0 : 1);
  if (given != 1) {
    return fail(ErrorCode::kInvalidArgument,
                "run: expected one of -p TEXT, --ids 1,2,3 and --ids-file F.npy, found {}",
                given == 0 ? "none" : "several");
  }
  if (!options.prompt && (options.system || options.raw || options.think)) {
    return fail(ErrorCode::kInvalidArgument,
                "run: --system, --raw and --think go with -p, not with token ids");
  }
  if (options.raw && (options.system || options.think)) {
    return fail(ErrorCode::kInvalidArgument,
                "run: --system and --think need the chat format that --raw switches off");
  }
  return {};
}

Result<std::vector<TokenId>> prompt_ids(const Options& options, const LoadedModel& model) {
  if (!options.prompt) return required_ids(options);
  LILY_TRY(const std::string text, prompt_text(*options.prompt));
  if (options.raw) {
    LILY_TRY(const Tokenizer* tokenizer, require_tokenizer(model));
    return tokenizer->encode(text);
  }
  auto messages = nlohmann::ordered_json::array();
  if (options.system) messages.push_back({{"role", "system"}, {"content", *options.system}});
  messages.push_back({{"role", "user"}, {"content", text}});
  return chat_prompt(model, messages, options.think);
}

Result<void> print_json(const Answer& answer, const LoadedModel& model, const SamplingParams& sampling) {
  nlohmann::ordered_json json = {{"model", model.name()}};
  if (model.tokenizer() != nullptr) {
    json["text"] = answer.content;
    json["reasoning"] = answer.reasoning;
  }
  json["ids"] = answer.ids;
  json["finish_reason"] = finish_reason_name(answer.reason);
  json["seed"] = sampling.seed;
  json["prompt_tokens"] = answer.usage.prompt_tokens;
  json["completion_tokens"] = answer.usage.completion_tokens;
  json["prefill_seconds"] = answer.usage.prefill_seconds;
  json["decode_seconds"] = answer.usage.decode_seconds;
  return console::print(json_line(json));
}

// Ids as they come, one line: what --ids takes.
AnswerSink print_ids() {
  return [first = true](TokenId id, const OutputDelta&) mutable {
    if (id < 0) return console::print("\n");
    const std::string_view separator = first ? "" : ",";
    first = false;
    return console::print(fmt::format("{}{}", separator, id));
  };
}

AnswerSink print_text() {
  return [text = AnswerText(console::styled())](TokenId id, const OutputDelta& delta) mutable {
    std::string out = text.add(delta);
    if (id < 0) out += text.finish() + "\n";
    return console::print(out);
  };
}

}  // namespace

Result<void> run_run(const Options& options) {
  LILY_TRY_VOID(check_sources(options));
  LILY_TRY(const auto engine, open_engine(options, 0));
  const LoadedModel& model = engine->model();
  GenerateRequest request;
  LILY_TRY(request.prompt, prompt_ids(options, model));
  request.sampling = sampling_params(options, model);
  request.max_tokens = options.max_tokens;
  request.ignore_eos = options.ignore_eos;

  const SamplingParams sampling = request.sampling;
  const bool as_ids = options.print_ids || model.tokenizer() == nullptr;
  AnswerSink sink = as_ids ? print_ids() : print_text();
  if (options.json) sink = [](TokenId, const OutputDelta&) -> Result<void> { return {}; };
  const Interrupt interrupt;
  LILY_TRY(const Answer answer, stream_answer(*engine, std::move(request), &interrupt, sink));
  if (options.json) LILY_TRY_VOID(print_json(answer, model, sampling));
  if (console::stderr_is_terminal() && console::stdout_is_terminal() && !options.json) {
    fmt::print(stderr, "{}\n", console::dim(format_summary(answer)));
  }
  if (answer.reason == FinishReason::kCancelled) return interrupted();
  return {};
}

}  // namespace lily
