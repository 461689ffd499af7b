// What the model emits, split into reasoning, content and tool calls: a state machine over token ids. The
// think block's end is the id of </think>, never a look-alike spelled in ordinary tokens; stop strings apply
// to content only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/detokenizer.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"
#include "text/tool_call_parser.h"

namespace lily {

/// A part of one tool call: its beginning when `name` is not empty; `arguments` of all its parts,
/// concatenated, are the text of a JSON object.
struct ToolCallDelta {
  int index = 0;  ///< 0, 1, ... in the order of the calls
  std::string name;
  std::string arguments;
};

/// In this order: reasoning, content, calls.
struct OutputDelta {
  std::string reasoning;
  std::string content;
  std::vector<ToolCallDelta> calls;
  bool stopped = false;  ///< a stop string was met: content ends right before it, nothing follows
  [[nodiscard]] bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};

/// Whether an answer to `prompt` begins inside the think block: its last <think> id comes after its last
/// </think>.
[[nodiscard]] bool starts_in_reasoning(const Tokenizer& tokenizer, std::span<const TokenId> prompt);

/// What an answer's request says about its text.
struct OutputRules {
  std::vector<std::string> stop = {};
  std::shared_ptr<const ToolSet> tools = nullptr;  ///< null: none
  bool plain = false;  ///< all is content: no think block, no calls, special tokens aside
};

/// Rules, beyond those of the header's first lines:
/// - <think> and </think> ids are never text. A <think> changes nothing (the prompt has opened the block, or
/// closed it);
///   a </think> outside the block changes nothing either.
/// - Newlines right before the </think> that ends the reasoning belong to neither part, nor do those right
/// after it, nor
///   those right after a tag that comes before any other text.
/// - Special tokens have no text.
/// - An answer that ends inside the block (cut by its length) is reasoning alone.
/// - Without tools, tool-call markup is ordinary text. With tools, calls in the content come out as calls
/// (tool_call_parser.h).
///   In the reasoning their markup is text, since models think about calls before they make one; but calls of
///   offered functions that end the reasoning and are followed by no content at all are what the model meant
///   to answer, and come out as calls.
class OutputParser {
 public:
  OutputParser(const Tokenizer& tokenizer, std::span<const TokenId> prompt, const OutputRules& rules);

  /// Takes the next generated id (never a stop id; none after `stopped`). Deltas are whole UTF-8 sequences,
  /// and concatenated they do not depend on how the same bytes were cut into tokens.
  OutputDelta push(TokenId id);
  /// Releases everything held back. `cut`: a limit ended the answer, not the model.
  OutputDelta finish(bool cut = false);

  [[nodiscard]] bool in_reasoning() const { return in_reasoning_; }
  /// Ids taken inside the think block, with the one that closed it.
  [[nodiscard]] std::int64_t reasoning_tokens() const { return reasoning_tokens_; }
  /// Tool calls begun so far.
  [[nodiscard]] int calls() const { return calls_; }
  /// Tool calls whose arguments are complete.
  [[nodiscard]] int complete_calls() const { return complete_calls_; }
  /// The stop string that was met.
  [[nodiscard]] const std::string& stop_string() const { return stop_.met(); }

 private:
  /// Calls that the reasoning may end with: held until what follows tells whether they are meant.
  struct Candidate {
    std::string text;
    ToolCallParser parser;
    std::vector<ToolEvent> events;
  };

  void take_text(std::string_view text, OutputDelta& delta);
  void take_tag(TokenId id, OutputDelta& delta);
  void close_reasoning(OutputDelta& delta);
  void take_reasoning(std::string_view text, OutputDelta& delta);
  void watch_reasoning(std::string_view text, OutputDelta& delta);
  [[nodiscard]] bool candidate_holds() const;
  void release_candidate(OutputDelta& delta);
  void take_content(std::string_view text, OutputDelta& delta);
  void take_events(std::vector<ToolEvent> events, OutputDelta& delta);
  void put_content(std::string_view text, OutputDelta& delta);

  const Tokenizer* tokenizer_;
  std::optional<TokenId> think_;
  std::optional<TokenId> end_think_;
  std::shared_ptr<const ToolSet> tools_;
  Detokenizer detokenizer_;
  StopStrings stop_;
  std::optional<ToolCallParser> tool_parser_;  // of the content, when there are tools
  std::optional<Candidate> candidate_;
  bool in_reasoning_;
  bool skip_newlines_ = false;  // the next newlines belong to a tag
  bool at_start_ = true;        // of the reasoning or of the content: nothing but tags came so far
  std::string held_newlines_;   // of the reasoning: dropped if </think> follows
  std::string possible_tag_;    // of the reasoning: the start of what may become a call's markup
  std::string late_content_;    // came after a call in one delta: goes first in the next
  bool stopped_ = false;
  int calls_ = 0;
  int complete_calls_ = 0;
  std::int64_t reasoning_tokens_ = 0;
};

}  // namespace lily
