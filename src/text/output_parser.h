// What the model emits, split into reasoning and content: a state machine over token ids. The think block's
// end is the id of </think>, never a look-alike spelled in ordinary tokens; stop strings apply to content
// only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/detokenizer.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"

namespace lily {

struct OutputDelta {
  std::string reasoning;
  std::string content;
  bool stopped = false;  ///< a stop string was met: content ends right before it, nothing follows
  [[nodiscard]] bool empty() const { return reasoning.empty() && content.empty(); }
};

/// Whether an answer to `prompt` begins inside the think block: its last <think> id comes after its last
/// </think>.
[[nodiscard]] bool starts_in_reasoning(const Tokenizer& tokenizer, std::span<const TokenId> prompt);

/// Rules, beyond those of the header's first lines:
/// - <think> and </think> ids are never text. A <think> changes nothing (the prompt has opened the block, or
/// closed it);
///   a </think> outside the block changes nothing either.
/// - Newlines right before the </think> that ends the reasoning belong to neither part, nor do those right
/// after it, nor
///   those right after a tag that comes before any other text.
/// - Special tokens have no text. Tool-call tags are ordinary text, inside the block and outside.
/// - An answer that ends inside the block (cut by its length) is reasoning alone.
class OutputParser {
 public:
  OutputParser(const Tokenizer& tokenizer, std::span<const TokenId> prompt,
               const std::vector<std::string>& stop);

  /// Takes the next generated id (never a stop id; none after `stopped`). Deltas are whole UTF-8 sequences,
  /// and concatenated they do not depend on how the same bytes were cut into tokens.
  OutputDelta push(TokenId id);
  /// Releases everything held back.
  OutputDelta finish();

  [[nodiscard]] bool in_reasoning() const { return in_reasoning_; }
  /// Ids taken inside the think block, with the one that closed it.
  [[nodiscard]] std::int64_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  void take_text(std::string_view text, OutputDelta& delta);
  void take_tag(TokenId id, OutputDelta& delta);
  void close_reasoning(OutputDelta& delta);

  const Tokenizer* tokenizer_;
  std::optional<TokenId> think_;
  std::optional<TokenId> end_think_;
  Detokenizer detokenizer_;
  StopStrings stop_;
  bool in_reasoning_;
  bool skip_newlines_ = false;  // the next newlines belong to a tag
  bool at_start_ = true;        // of the reasoning or of the content: nothing but tags came so far
  std::string held_newlines_;   // of the reasoning: dropped if </think> follows
  bool stopped_ = false;
  std::int64_t reasoning_tokens_ = 0;
};

}  // namespace lily
