#include "text/output_parser.h"

#include <algorithm>

#include "base/check.h"

namespace lily {

bool starts_in_reasoning(const Tokenizer& tokenizer, std::span<const TokenId> prompt) {
  const std::optional<TokenId> think = tokenizer.added_token("<think>");
  const std::optional<TokenId> end_think = tokenizer.added_token("</think>");
  for (std::size_t i = prompt.size(); i-- > 0;) {
    if (prompt[i] == think) return true;
    if (prompt[i] == end_think) return false;
  }
  return false;
}

OutputParser::OutputParser(const Tokenizer& tokenizer, std::span<const TokenId> prompt,
                           const std::vector<std::string>& stop)
    : tokenizer_(&tokenizer),
      think_(tokenizer.added_token("<think>")),
      end_think_(tokenizer.added_token("</think>")),
      detokenizer_(tokenizer),
      stop_(stop),
      in_reasoning_(starts_in_reasoning(tokenizer, prompt)) {}

OutputDelta OutputParser::push(TokenId id) {
  LILY_CHECK(!stopped_, "token {} after a stop string", id);
  OutputDelta delta;
  if (in_reasoning_) ++reasoning_tokens_;
  if (id == think_ || id == end_think_) {
    take_tag(id, delta);
  } else if (!tokenizer_->is_special(id)) {
    take_text(detokenizer_.push(id), delta);
  }
  return delta;
}

void OutputParser::take_tag(TokenId id, OutputDelta& delta) {
  if (in_reasoning_ && id == end_think_) {
    close_reasoning(delta);
  } else if (at_start_) {
    skip_newlines_ = true;
  }
}

void OutputParser::close_reasoning(OutputDelta& delta) {
  take_text(detokenizer_.finish(), delta);  // a character that the tag cut off
  held_newlines_.clear();
  in_reasoning_ = false;
  skip_newlines_ = true;
  at_start_ = true;
}

void OutputParser::take_text(std::string_view text, OutputDelta& delta) {
  if (skip_newlines_) text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  if (text.empty()) return;
  skip_newlines_ = false;
  at_start_ = false;
  if (!in_reasoning_) {
    stopped_ = stop_.push(text, delta.content);
    delta.stopped = stopped_;
    return;
  }
  const std::size_t end = text.find_last_not_of('\n') + 1;  // 0 when all of it is newlines
  if (end > 0) {
    delta.reasoning += held_newlines_;
    delta.reasoning += text.substr(0, end);
    held_newlines_.clear();
  }
  held_newlines_ += text.substr(end);
}

OutputDelta OutputParser::finish() {
  OutputDelta delta;
  if (stopped_) return delta;
  take_text(detokenizer_.finish(), delta);
  if (in_reasoning_) delta.reasoning += held_newlines_;
  held_newlines_.clear();
  if (!stopped_) stop_.finish(delta.content);
  return delta;
}

}  // namespace lily
