#include "text/tool_call_parser.h"

#include <algorithm>
#include <utility>

namespace lily {
namespace {

using Match = ToolCallParser::Match;
using Kind = ToolEvent::Kind;

constexpr std::string_view kBlank = " \t\r\n";
constexpr std::string_view kToolCall = "<tool_call>";
constexpr std::string_view kEndToolCall = "</tool_call>";
constexpr std::string_view kFunction = "<function=";
constexpr std::string_view kEndFunction = "</function>";
constexpr std::string_view kParameter = "<parameter=";
constexpr std::string_view kEndParameter = "</parameter>";
constexpr std::size_t kLongestName = 256;

bool is_string_alone(const JsonTypes& t) {
  return t.string && !t.null && !t.boolean && !t.integer && !t.number && !t.object && !t.array;
}

std::size_t blank_prefix(std::string_view text) {
  return std::min(text.find_first_not_of(kBlank), text.size());
}

Match starts(std::string_view text, std::string_view tag) {
  if (text.starts_with(tag)) return Match::kYes;
  return tag.starts_with(text) ? Match::kWait : Match::kNo;
}

// An opener with a name, `<function=NAME>` or `<parameter=NAME>`, at the start of a text.
struct Named {
  Match match = Match::kNo;
  std::string_view name;
  std::size_t length = 0;  // of the tag
};

// `known` tells names that are taken whatever they hold; others hold nothing that a tag or a line is made of.
template <class Known>
Named read_named(std::string_view text, std::string_view tag, const Known& known) {
  if (const Match match = starts(text, tag); match != Match::kYes) return {match, {}, 0};
  const std::string_view rest = text.substr(tag.size());
  const std::size_t end = rest.find('>');
  if (end == std::string_view::npos) {
    const bool possible = rest.size() < kLongestName && rest.find_first_of("\n<") == std::string_view::npos;
    return {possible ? Match::kWait : Match::kNo, {}, 0};
  }
  const std::string_view name = rest.substr(0, end);
  const bool plain = !name.empty() && name.find_first_of(" \t\r\n</=\"") == std::string_view::npos;
  return {known(name) || plain ? Match::kYes : Match::kNo, name, tag.size() + end + 1};
}

Named read_function(std::string_view text, const ToolSet& tools) {
  return read_named(text, kFunction, [&](std::string_view name) { return tools.find(name) != nullptr; });
}

// A function of the offered ones; whether it is one shows only with the whole name.
Named read_offered(std::string_view text, const ToolSet& tools) {
  Named named = read_function(text, tools);
  if (named.match == Match::kYes && tools.find(named.name) == nullptr) named.match = Match::kNo;
  return named;
}

Match either(Match a, Match b) {
  return std::max(a, b);
}

}  // namespace

Match ToolCallParser::begins_call(std::string_view text, const ToolSet& tools) {
  return either(starts(text, kToolCall), read_offered(text, tools).match);
}

void ToolCallParser::push(std::string_view text, Events& out) {
  buffer_ += text;
  while (!buffer_.empty() && step(out)) {
  }
}

void ToolCallParser::finish(bool cut, Events& out) {
  cut_ = cut;
  ended_ = true;
  push("", out);
  if (state_ == State::kOpened) {
    if (cut) blanks_.clear();
    if (!cut) put_text(opening_, out);
  }
  if (state_ == State::kFunction || state_ == State::kValue) end_call(out);
  if (!after_call_ && !blanks_.empty()) out.push_back({Kind::kText, std::exchange(blanks_, {})});
  state_ = State::kText;
}

bool ToolCallParser::rests_after_call() const {
  return after_call_ && state_ == State::kText && buffer_.empty();
}

bool ToolCallParser::step(Events& out) {
  switch (state_) {
    case State::kText:
      return in_text(out);
    case State::kOpened:
      return in_opened(out);
    case State::kFunction:
      return in_function(out);
    case State::kValue:
      return in_value(out);
  }
  return false;
}

// Takes `tag` from the front of the buffer if it is there, whole.
bool ToolCallParser::take(std::string_view tag) {
  if (!buffer_.starts_with(tag)) return false;
  buffer_.erase(0, tag.size());
  return true;
}

void ToolCallParser::enter(State state, std::size_t bytes) {
  buffer_.erase(0, bytes);
  state_ = state;
}

// Blanks are held until something follows: before a call they are layout.
void ToolCallParser::put_text(std::string_view text, Events& out) {
  const std::size_t lead = blank_prefix(text);
  blanks_ += text.substr(0, lead);
  text.remove_prefix(lead);
  if (text.empty()) return;
  const std::size_t end = text.find_last_not_of(kBlank) + 1;
  const bool first_after_call = after_call_ && !has_text_;
  std::string all = first_after_call ? std::string() : blanks_;
  all += text.substr(0, end);
  blanks_ = text.substr(end);
  out.push_back({Kind::kText, std::move(all)});
  has_text_ = true;
  after_call_ = false;
}

bool ToolCallParser::in_text(Events& out) {
  const std::size_t plain = std::min(buffer_.find('<'), buffer_.size());
  if (plain > 0) {
    put_text(std::string_view(buffer_).substr(0, plain), out);
    buffer_.erase(0, plain);
    return true;
  }
  if (starts(buffer_, kToolCall) == Match::kYes) {
    opening_ = kToolCall;
    enter(State::kOpened, kToolCall.size());
    return true;
  }
  const Named function = read_offered(buffer_, *tools_);
  if (function.match == Match::kYes) {
    begin_call(std::string(function.name), function.length, out);
    return true;
  }
  Match stray = Match::kNo;  // closing tags right after a call are left over from it
  if (after_call_) {
    for (const auto tag : {kEndToolCall, kEndFunction, kEndParameter}) {
      if (take(tag)) {
        blanks_.clear();
        return true;
      }
      stray = either(stray, starts(buffer_, tag));
    }
  }
  if (ended_ && stray == Match::kWait) {  // cut off inside one
    buffer_.clear();
    return true;
  }
  const Match any = either(stray, either(starts(buffer_, kToolCall), function.match));
  if (any == Match::kWait && !ended_) return false;
  put_text("<", out);
  buffer_.erase(0, 1);
  return true;
}

bool ToolCallParser::in_opened(Events& out) {
  const std::size_t blank = blank_prefix(buffer_);
  opening_ += buffer_.substr(0, blank);
  buffer_.erase(0, blank);
  if (buffer_.empty()) return false;
  if (take(kToolCall)) {
    opening_ += kToolCall;
    return true;
  }
  const Named function = read_function(buffer_, *tools_);
  if (function.match == Match::kYes) {
    begin_call(std::string(function.name), function.length, out);
    return true;
  }
  if (either(function.match, starts(buffer_, kToolCall)) == Match::kWait && (!ended_ || cut_)) return false;
  state_ = State::kText;
  put_text(std::exchange(opening_, {}), out);
  return true;
}

void ToolCallParser::begin_call(std::string name, std::size_t bytes, Events& out) {
  parameters_ = tools_->find(name);
  keys_.clear();
  blanks_.clear();
  opening_.clear();
  out.push_back({Kind::kCall, std::move(name)});
  enter(State::kFunction, bytes);
}

void ToolCallParser::end_call(Events& out) {
  if (state_ == State::kValue) end_value(out);
  out.push_back({Kind::kArguments, keys_.empty() ? "{}" : "}"});
  out.push_back({Kind::kCallEnd, ""});
  after_call_ = true;
  state_ = State::kText;
}

bool ToolCallParser::in_function(Events& out) {
  const std::size_t skipped = std::min(buffer_.find('<'), buffer_.size());
  buffer_.erase(0, skipped);
  if (buffer_.empty()) return false;
  if (take(kEndFunction)) {
    end_call(out);
    return true;
  }
  if (starts(buffer_, kEndToolCall) == Match::kYes || starts(buffer_, kToolCall) == Match::kYes) {
    end_call(out);  // which takes the tag as well
    return true;
  }
  const Named function = read_offered(buffer_, *tools_);
  if (function.match == Match::kYes) {
    end_call(out);
    return true;
  }
  const Named key = read_named(buffer_, kParameter, [&](std::string_view name) {
    return parameters_ != nullptr && parameters_->contains(name);
  });
  if (key.match == Match::kYes) {
    begin_value(std::string(key.name), key.length, out);
    return true;
  }
  const Match any = std::max({function.match, key.match, starts(buffer_, kEndFunction),
                              starts(buffer_, kEndToolCall), starts(buffer_, kToolCall)});
  if (any == Match::kWait && !ended_) return false;
  buffer_.erase(0, 1);
  return true;
}

bool ToolCallParser::may_take(std::string_view key) const {
  return std::ranges::find(keys_, key) == keys_.end();
}

void ToolCallParser::begin_value(std::string key, std::size_t bytes, Events& out) {
  const auto* types =
      parameters_ != nullptr && parameters_->contains(key) ? &parameters_->find(key)->second : nullptr;
  types_ = types != nullptr ? *types : JsonTypes{.string = true};
  raw_ = is_string_alone(types_);
  value_.clear();
  value_starts_ = true;
  if (may_take(key)) {
    const std::string name = json_escaped(key);
    out.push_back({Kind::kArguments, (keys_.empty() ? "{\"" : ",\"") + name + (raw_ ? "\":\"" : "\":")});
    keys_.push_back(std::move(key));
  } else {
    // A second value for one key: read to its end like any other, and dropped.
    types_ = {};
    raw_ = false;
  }
  enter(State::kValue, bytes);
}

void ToolCallParser::put_value(std::string_view text, Events& out) {
  if (text.empty()) return;
  if (raw_) {
    out.push_back({Kind::kArguments, json_escaped(text)});
  } else {
    value_ += text;
  }
}

void ToolCallParser::end_value(Events& out) {
  const bool dropped = !raw_ && !types_.string && !types_.null && !types_.boolean && !types_.integer &&
                       !types_.number && !types_.object && !types_.array;
  if (!dropped) out.push_back({Kind::kArguments, raw_ ? "\"" : argument_json(value_, types_)});
  state_ = State::kFunction;
}

// Whether a value ends before `tail`, which begins with '<'. Its own closing tag ends it anywhere; another
// tag only where it cannot well be part of the value.
Match ToolCallParser::closes_value(std::string_view tail, bool at_line_start) const {
  if (const Match closer = starts(tail, kEndParameter); closer != Match::kNo) return closer;
  const auto followed_by = [&](std::string_view tag, std::string_view next, bool or_end) {
    if (const Match match = starts(tail, tag); match != Match::kYes) return match;
    const std::string_view rest = tail.substr(tag.size());
    const std::string_view after = rest.substr(blank_prefix(rest));
    if (after.empty()) return ended_ && or_end ? Match::kYes : Match::kWait;
    return starts(after, next);
  };
  const Match end =
      either(followed_by(kEndFunction, kEndToolCall, true), followed_by(kEndToolCall, kToolCall, true));
  if (end != Match::kNo || !at_line_start) return end;
  Named key = read_named(tail, kParameter, [](std::string_view) { return false; });
  const bool offered = parameters_ != nullptr && parameters_->contains(key.name) && may_take(key.name);
  return key.match == Match::kYes && !offered ? Match::kNo : key.match;
}

bool ToolCallParser::in_value(Events& out) {
  if (value_starts_) {
    value_starts_ = false;
    if (take("\n")) return true;
  }
  const std::size_t tag = std::min(buffer_.find('<'), buffer_.size());
  // The newline before a tag is layout if the tag ends the value.
  const bool newline = tag > 0 && buffer_[tag - 1] == '\n';
  const std::size_t certain = newline ? tag - 1 : tag;
  if (certain > 0) {
    put_value(std::string_view(buffer_).substr(0, certain), out);
    buffer_.erase(0, certain);
    return true;
  }
  if (tag == buffer_.size()) {  // a newline alone
    if (!ended_) return false;
    put_value(std::exchange(buffer_, {}), out);
    return true;
  }
  const std::string_view tail = std::string_view(buffer_).substr(tag);
  const Match match = closes_value(tail, newline);
  if (match == Match::kWait && !ended_) return false;
  // Cut off inside its closing tag, the value ends before it.
  const bool cut = ended_ && tail.size() > 1 && kEndParameter.starts_with(tail);
  if (match == Match::kYes || cut) {
    buffer_.erase(0, tag);
    end_value(out);
    take(kEndParameter);
    return true;
  }
  put_value(std::string_view(buffer_).substr(0, tag + 1), out);
  buffer_.erase(0, tag + 1);
  return true;
}

}  // namespace lily
