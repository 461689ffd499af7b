// What the model emits, split into reasoning and content: a state machine over token ids. The think block's
// end is the id of </think>, never a look-alike spelled in ordinary tokens; stop strings apply to content
// only.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace lily {

struct OutputDelta {
  std::string reasoning;
  std::string content;
  bool stopped = false;  ///< a stop string was met: content ends right before it, nothing follows
  [[nodiscard]] bool empty() const { return reasoning.empty() && content.empty(); }
};

class OutputParser {
 public:
  /// `prompt` decides where the output starts: in reasoning if its last <think> id comes after its last
  /// </think>.
  OutputParser(const Tokenizer& tokenizer, std::span<const TokenId> prompt, std::vector<std::string> stop);

  /// Takes the next generated id (never a stop id). Concatenated deltas do not depend on how tokens were cut.
  OutputDelta push(TokenId id);
  /// Releases everything held back.
  OutputDelta finish();

  [[nodiscard]] bool in_reasoning() const { return in_reasoning_; }
  [[nodiscard]] std::int64_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  const Tokenizer* tokenizer_;
  Detokenizer detokenizer_;
  std::vector<std::string> stop_;
  bool in_reasoning_ = false;
  std::int64_t reasoning_tokens_ = 0;
};

}  // namespace lily
