#include "server/chat_session.h"

#include <utility>

#include "server/http.h"

namespace lily {

ChatSession::ChatSession(const Tokenizer& tokenizer, std::shared_ptr<Generation> generation,
                         std::span<const TokenId> prompt, const ChatRequest& request)
    : tokenizer_(tokenizer),
      generation_(std::move(generation)),
      parser_(tokenizer, prompt,
              {.stop = request.stop, .tools = request.tools.set, .plain = request.prompt.has_value()}),
      with_logprobs_(request.logprobs),
      parallel_calls_(request.tools.parallel),
      prompt_tokens_(std::ssize(prompt)) {}

ChatSession::~ChatSession() {
  generation_->cancel();
}

std::optional<ChatPiece> ChatSession::next(std::chrono::milliseconds patience) {
  if (finished_) return std::nullopt;
  if (const auto token = generation_->next_for(patience)) return take(*token);
  if (!generation_->finished()) return std::nullopt;
  finished_ = true;
  return piece(parser_.finish(generation_->finish_reason() == FinishReason::kLength));
}

ChatPiece ChatSession::take(const Sampled& token) {
  ++taken_;
  OutputDelta delta = parser_.push(token.id);
  if (with_logprobs_) held_logprobs_.push_back(logprob(token));
  if (delta.stopped || (!parallel_calls_ && parser_.complete_calls() > 0)) stop_here();
  return piece(std::move(delta));
}

void ChatSession::stop_here() {
  stopped_ = true;
  finished_ = true;
  generation_->cancel();
}

ChatPiece ChatSession::piece(OutputDelta delta) {
  ChatPiece out{.reasoning = std::move(delta.reasoning), .content = std::move(delta.content)};
  for (ToolCallDelta& call : delta.calls) {
    std::string id = call.name.empty() ? std::string() : random_id("call_");
    out.calls.push_back({call.index, std::move(id), std::move(call.name), std::move(call.arguments)});
  }
  if (!out.empty() || finished_) out.logprobs = std::exchange(held_logprobs_, {});
  return out;
}

ChatLogprob ChatSession::logprob(const Sampled& token) const {
  ChatLogprob out{std::string(tokenizer_.bytes(token.id)), token.logprob, {}};
  for (const TokenLogprob& other : token.top) {
    out.top.push_back({std::string(tokenizer_.bytes(other.id)), other.logprob});
  }
  return out;
}

std::optional<ApiError> ChatSession::error() const {
  if (stopped_) return std::nullopt;
  switch (generation_->finish_reason()) {
    case FinishReason::kStop:
    case FinishReason::kLength:
      return std::nullopt;
    case FinishReason::kCancelled:
      return to_api_error(fail(ErrorCode::kCancelled, "cancelled"));
    case FinishReason::kTimeout:
      return ApiError{.status = 504,
                      .message = "the request's time is up before its answer was complete",
                      .type = "timeout_error",
                      .code = "timeout"};
    case FinishReason::kError:
      break;
  }
  return to_api_error(generation_->error());
}

// After a stop of ours the engine may be some tokens further than what was taken; those are nobody's.
ChatEnd ChatSession::end() const {
  const GenerationUsage engine = generation_->usage();
  ChatEnd end{.stop_string = parser_.stop_string(),
              .usage = {.prompt_tokens = prompt_tokens_,
                        .cached_tokens = engine.cached_tokens,
                        .completion_tokens = stopped_ ? taken_ : engine.completion_tokens,
                        .reasoning_tokens = parser_.reasoning_tokens()}};
  if (!stopped_ && generation_->finish_reason() == FinishReason::kLength) {
    end.reason = ChatEnd::Reason::kLength;
  } else if (parser_.calls() > 0) {
    end.reason = ChatEnd::Reason::kToolCalls;
  } else if (!end.stop_string.empty()) {
    end.reason = ChatEnd::Reason::kStopString;
  }
  return end;
}

}  // namespace lily
