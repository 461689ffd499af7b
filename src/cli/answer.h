// One answer of the engine on its way to the user: tokens, their text, and how it is shown while it grows.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/interrupt.h"
#include "engine/engine.h"
#include "text/output_parser.h"

namespace lily {

struct Answer {
  std::vector<TokenId> ids;  ///< without the stop id
  std::string reasoning;     ///< empty for a model without a tokenizer, as content is
  std::string content;
  FinishReason reason = FinishReason::kStop;
  GenerationUsage usage;
};

/// Called for each new token with the text it released, and once at the end (id -1) with the text still held
/// back.
using AnswerSink = std::function<Result<void>(TokenId id, const OutputDelta& delta)>;

/// Runs `request` to its end, or until `interrupt` (may be null); while the prompt is read, stderr shows how
/// far it is (on a terminal). Errors: what submit() refuses, what the device reports, what `sink` returns.
Result<Answer> stream_answer(Engine& engine, GenerateRequest request, const Interrupt* interrupt,
                             const AnswerSink& sink);

/// Lays out reasoning and content as one text: reasoning dimmed, or between <think> and </think> where no
/// styles are allowed.
class AnswerText {
 public:
  explicit AnswerText(bool styled) : styled_(styled) {}
  /// What to print for the next delta.
  [[nodiscard]] std::string add(const OutputDelta& delta);
  /// What to print at the end.
  [[nodiscard]] std::string finish();

 private:
  bool styled_;
  bool in_reasoning_ = false;
};

/// "21 + 96 tokens, 812 tok/s prompt, 51.3 tok/s answer, first token after 0.3 s", and what cut it short.
[[nodiscard]] std::string format_summary(const Answer& answer);

}  // namespace lily
