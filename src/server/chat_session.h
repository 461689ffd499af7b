// One chat answer on its way from the engine: tokens in, parsed pieces out, the same for streamed and whole
// answers.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "server/chat_answer.h"
#include "server/chat_request.h"
#include "text/output_parser.h"
#include "text/tokenizer.h"

namespace lily {

class ChatSession {
 public:
  /// `generation` answers `prompt`. The tokenizer outlives the session.
  ChatSession(const Tokenizer& tokenizer, std::shared_ptr<Generation> generation,
              std::span<const TokenId> prompt, const ChatRequest& request);
  ~ChatSession();  ///< whatever still runs is cancelled
  ChatSession(const ChatSession&) = delete;
  ChatSession& operator=(const ChatSession&) = delete;

  /// The next piece (it may be empty: a token can be held back). Nullopt when none came within `patience` or
  /// none will come any more.
  std::optional<ChatPiece> next(std::chrono::milliseconds patience);

  [[nodiscard]] bool finished() const { return finished_; }
  [[nodiscard]] std::int64_t prompt_tokens() const { return prompt_tokens_; }
  /// Prompt tokens computed so far.
  [[nodiscard]] std::int64_t prefilled() const { return generation_->prefilled(); }

  /// Once finished: what went wrong, if the answer is not one.
  [[nodiscard]] std::optional<ApiError> error() const;
  /// Once finished without error.
  [[nodiscard]] ChatEnd end() const;

 private:
  ChatPiece take(const Sampled& token);
  ChatPiece piece(OutputDelta delta);
  void stop_here();
  [[nodiscard]] ChatLogprob logprob(const Sampled& token) const;

  const Tokenizer& tokenizer_;
  std::shared_ptr<Generation> generation_;
  OutputParser parser_;
  bool with_logprobs_;
  bool parallel_calls_;
  std::vector<ChatLogprob> held_logprobs_;  // of tokens whose text has not come out yet
  std::int64_t prompt_tokens_;
  std::int64_t taken_ = 0;
  bool stopped_ = false;  // by us: a stop string, or the one call that was asked for
  bool finished_ = false;
};

}  // namespace lily
