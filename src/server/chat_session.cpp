#include "server/chat_session.h"

namespace lily {

ChatSession::ChatSession(const Tokenizer& tokenizer, std::shared_ptr<Generation> generation,
                         std::span<const TokenId> prompt, const ChatRequest& request)
    : tokenizer_(tokenizer),
      generation_(std::move(generation)),
      parser_(tokenizer, prompt, request.stop),
      with_logprobs_(request.logprobs),
      prompt_tokens_(std::ssize(prompt)) {}

ChatSession::~ChatSession() {
  generation_->cancel();
}

std::optional<ChatPiece> ChatSession::next(std::chrono::milliseconds patience) {
  if (finished_) return std::nullopt;
  if (const auto token = generation_->next_for(patience)) return take(*token);
  if (!generation_->finished()) return std::nullopt;
  finished_ = true;
  return piece(parser_.finish());
}

ChatPiece ChatSession::take(const Sampled& token) {
  ++taken_;
  OutputDelta delta = parser_.push(token.id);
  if (with_logprobs_) held_logprobs_.push_back(logprob(token));
  if (delta.stopped) {
    stopped_ = true;
    finished_ = true;
    generation_->cancel();
  }
  return piece(std::move(delta));
}

ChatPiece ChatSession::piece(OutputDelta delta) {
  ChatPiece out{std::move(delta.reasoning), std::move(delta.content), {}};
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

std::string_view ChatSession::finish_reason() const {
  return !stopped_ && generation_->finish_reason() == FinishReason::kLength ? "length" : "stop";
}

// After a stop string the engine may be some tokens further than what was taken; those are nobody's.
ChatUsage ChatSession::usage() const {
  const GenerationUsage engine = generation_->usage();
  return {.prompt_tokens = prompt_tokens_,
          .cached_tokens = engine.cached_tokens,
          .completion_tokens = stopped_ ? taken_ : engine.completion_tokens,
          .reasoning_tokens = parser_.reasoning_tokens()};
}

}  // namespace lily
