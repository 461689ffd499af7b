// OpenAI's older completions: a prompt continued as it is, without template, think block or tools.
#pragma once

#include <string_view>
#include <variant>

#include "server/chat_answer.h"
#include "server/chat_request.h"
#include "text/tokenizer.h"

namespace lily {

struct Completion {
  ChatRequest chat = {};
  bool include_usage = false;  ///< of a stream
};

std::variant<Completion, ApiError> parse_completion_request(std::string_view body,
                                                            const ChatDefaults& defaults,
                                                            const Tokenizer& tokenizer);

class CompletionDialect : public ChatDialect {
 public:
  /// `identity.id` is "cmpl-...".
  CompletionDialect(ChatIdentity identity, const Completion& request);

  std::string whole(const ChatPiece& answer, const ChatEnd& end) override;
  std::string begin(const ChatUsage& prompt) override;
  std::string piece(const ChatPiece& piece) override;
  std::string end(const ChatEnd& end) override;
  std::string break_off(const ApiError& error) override;

 private:
  [[nodiscard]] nlohmann::ordered_json choice(const ChatPiece& piece);

  ChatIdentity identity_;
  bool with_logprobs_;
  bool include_usage_;
  std::size_t offset_ = 0;  // of the next token in the text, for log-probabilities
};

}  // namespace lily
