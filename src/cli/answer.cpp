#include "cli/answer.h"

#include <chrono>
#include <optional>

#include "base/progress.h"

namespace lily {
namespace {

// How often a wait for the next token looks at the interrupt and the progress.
constexpr auto kPoll = std::chrono::milliseconds(50);

void append(Answer& answer, const OutputDelta& delta) {
  answer.reasoning += delta.reasoning;
  answer.content += delta.content;
}

double per_second(std::int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

}  // namespace

Result<Answer> stream_answer(Engine& engine, GenerateRequest request, const Interrupt* interrupt,
                             const AnswerSink& sink) {
  std::optional<OutputParser> parser;
  if (const Tokenizer* tokenizer = engine.model().tokenizer()) {
    parser.emplace(*tokenizer, request.prompt, OutputRules{});
  }
  Progress progress("reading", ProgressUnit::kTokens, static_cast<std::int64_t>(request.prompt.size()));
  LILY_TRY(const auto generation, engine.submit(std::move(request)));
  Answer answer;
  while (!generation->finished()) {
    if (interrupt != nullptr && interrupt->pending()) generation->cancel();
    const auto token = generation->next_for(kPoll);
    if (!token) {
      if (answer.ids.empty()) progress.update(generation->prefilled());
      continue;
    }
    progress.clear();
    answer.ids.push_back(token->id);
    const OutputDelta delta = parser ? parser->push(token->id) : OutputDelta{};
    append(answer, delta);
    LILY_TRY_VOID(sink(token->id, delta));
  }
  answer.reason = generation->finish_reason();
  if (answer.reason == FinishReason::kError) return generation->error();
  const OutputDelta rest = parser ? parser->finish() : OutputDelta{};
  append(answer, rest);
  LILY_TRY_VOID(sink(-1, rest));
  answer.usage = generation->usage();
  return answer;
}

std::string AnswerText::add(const OutputDelta& delta) {
  std::string text;
  if (!delta.reasoning.empty()) {
    if (!in_reasoning_) text += styled_ ? "\x1b[2m" : "<think>\n";
    in_reasoning_ = true;
    text += delta.reasoning;
  }
  if (!delta.content.empty()) {
    if (in_reasoning_) text += styled_ ? "\x1b[0m\n\n" : "\n</think>\n\n";
    in_reasoning_ = false;
    text += delta.content;
  }
  return text;
}

std::string AnswerText::finish() {
  const bool reset = in_reasoning_ && styled_;
  in_reasoning_ = false;
  return reset ? "\x1b[0m" : "";
}

std::string format_summary(const Answer& answer) {
  const GenerationUsage& usage = answer.usage;
  std::string_view ending;
  if (answer.reason == FinishReason::kLength) ending = ", cut at the token limit";
  if (answer.reason == FinishReason::kCancelled) ending = ", stopped";
  // The first token of the answer belongs to the prompt's time.
  return fmt::format("{} + {} tokens, {:.0f} tok/s prompt, {:.1f} tok/s answer, first token after {:.1f} s{}",
                     usage.prompt_tokens, usage.completion_tokens,
                     per_second(usage.prompt_tokens - usage.cached_tokens, usage.prefill_seconds),
                     per_second(usage.completion_tokens - 1, usage.decode_seconds),
                     usage.queue_seconds + usage.prefill_seconds, ending);
}

}  // namespace lily
