#include "text/output_parser.h"

#include <algorithm>
#include <utility>

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
                           const OutputRules& rules)
    : tokenizer_(&tokenizer),
      tools_(rules.plain ? nullptr : rules.tools),
      detokenizer_(tokenizer),
      stop_(rules.stop),
      in_reasoning_(!rules.plain && starts_in_reasoning(tokenizer, prompt)) {
  if (rules.plain) return;
  think_ = tokenizer.added_token("<think>");
  end_think_ = tokenizer.added_token("</think>");
  if (tools_ != nullptr) tool_parser_.emplace(*tools_);
}

OutputDelta OutputParser::push(TokenId id) {
  LILY_CHECK(!stopped_, "token {} after a stop string", id);
  OutputDelta delta;
  if (!late_content_.empty()) put_content(std::exchange(late_content_, {}), delta);
  if (stopped_) return delta;
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
  take_reasoning(std::exchange(possible_tag_, {}), delta);
  if (candidate_ && !candidate_->parser.rests_after_call()) release_candidate(delta);
  if (!candidate_) held_newlines_.clear();
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
    take_content(text, delta);
  } else if (tools_ != nullptr) {
    watch_reasoning(text, delta);
  } else {
    take_reasoning(text, delta);
  }
}

// Newlines at the end are held: before </think> they belong to nobody.
void OutputParser::take_reasoning(std::string_view text, OutputDelta& delta) {
  const std::size_t end = text.find_last_not_of('\n') + 1;  // 0 when all of it is newlines
  if (end > 0) {
    delta.reasoning += held_newlines_;
    delta.reasoning += text.substr(0, end);
    held_newlines_.clear();
  }
  held_newlines_ += text.substr(end);
}

// Reasoning that may hold calls: from the first byte of what looks like one, text is held in a candidate.
void OutputParser::watch_reasoning(std::string_view text, OutputDelta& delta) {
  std::string pending = std::exchange(possible_tag_, {});
  pending += text;
  while (!pending.empty()) {
    if (candidate_) {
      candidate_->text += pending;
      candidate_->parser.push(pending, candidate_->events);
      if (candidate_holds()) return;
      // Not a call after all: its first byte is text for certain, the rest is looked at again.
      pending = std::exchange(candidate_->text, {});
      candidate_.reset();
      take_reasoning(pending.substr(0, 1), delta);
      pending.erase(0, 1);
      continue;
    }
    const std::size_t plain = std::min(pending.find('<'), pending.size());
    take_reasoning(std::string_view(pending).substr(0, plain), delta);
    pending.erase(0, plain);
    if (pending.empty()) return;
    switch (ToolCallParser::begins_call(pending, *tools_)) {
      case ToolCallParser::Match::kYes:
        candidate_.emplace(Candidate{"", ToolCallParser(*tools_), {}});
        break;
      case ToolCallParser::Match::kWait:
        possible_tag_ = std::move(pending);
        return;
      case ToolCallParser::Match::kNo:
        take_reasoning("<", delta);
        pending.erase(0, 1);
        break;
    }
  }
}

// Calls of offered functions and nothing else, so far.
bool OutputParser::candidate_holds() const {
  return std::ranges::none_of(candidate_->events, [&](const ToolEvent& event) {
    return event.kind == ToolEvent::Kind::kText ||
           (event.kind == ToolEvent::Kind::kCall && tools_->find(event.text) == nullptr);
  });
}

void OutputParser::release_candidate(OutputDelta& delta) {
  if (!candidate_) return;
  take_reasoning(candidate_->text, delta);
  candidate_.reset();
  if (!in_reasoning_) held_newlines_.clear();
}

void OutputParser::take_content(std::string_view text, OutputDelta& delta) {
  if (candidate_ && text.find_first_not_of(" \t\r\n") != std::string_view::npos) release_candidate(delta);
  if (!tool_parser_) return put_content(text, delta);
  std::vector<ToolEvent> events;
  tool_parser_->push(text, events);
  take_events(std::move(events), delta);
}

void OutputParser::take_events(std::vector<ToolEvent> events, OutputDelta& delta) {
  for (ToolEvent& event : events) {
    switch (event.kind) {
      case ToolEvent::Kind::kText:
        if (delta.calls.empty() && late_content_.empty()) {
          put_content(event.text, delta);
        } else {
          late_content_ += event.text;
        }
        break;
      case ToolEvent::Kind::kCall:
        delta.calls.push_back({calls_++, std::move(event.text), ""});
        break;
      case ToolEvent::Kind::kArguments:
        if (delta.calls.empty()) delta.calls.push_back({calls_ - 1, "", ""});
        delta.calls.back().arguments += event.text;
        break;
      case ToolEvent::Kind::kCallEnd:
        ++complete_calls_;
        break;
    }
    if (stopped_) return;
  }
}

void OutputParser::put_content(std::string_view text, OutputDelta& delta) {
  stopped_ = stop_.push(text, delta.content);
  delta.stopped = stopped_;
}

OutputDelta OutputParser::finish(bool cut) {
  OutputDelta delta;
  if (stopped_) return delta;
  if (!late_content_.empty()) put_content(std::exchange(late_content_, {}), delta);
  take_text(detokenizer_.finish(), delta);
  take_reasoning(std::exchange(possible_tag_, {}), delta);
  std::vector<ToolEvent> events;
  if (candidate_ && candidate_->parser.rests_after_call() && calls_ == 0) {
    candidate_->parser.finish(cut, candidate_->events);
    events = std::exchange(candidate_->events, {});
    candidate_.reset();
    held_newlines_.clear();
  }
  release_candidate(delta);
  if (in_reasoning_) delta.reasoning += held_newlines_;
  held_newlines_.clear();
  if (tool_parser_) tool_parser_->finish(cut, events);
  take_events(std::move(events), delta);
  if (!stopped_) put_content(std::exchange(late_content_, {}), delta);
  if (!stopped_) stop_.finish(delta.content);
  return delta;
}

}  // namespace lily
