// OpenAI's chat completions: a request parsed and validated, an answer and its stream chunks as JSON text.
// Which fields mean what is docs/api.md.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "server/chat_answer.h"
#include "server/chat_request.h"

namespace lily {

struct OpenAiChat {
  ChatRequest chat = {};
  bool include_usage = false;  ///< of a stream
};

/// Unknown fields are ignored; a known field of the wrong type or out of range is an error that names it.
std::variant<OpenAiChat, ApiError> parse_chat_request(std::string_view body, const ChatDefaults& defaults);

/// Fields an answer does not use are absent, never null; only content is null, beside tool calls.
class OpenAiDialect : public ChatDialect {
 public:
  /// `identity.id` is "chatcmpl-...".
  OpenAiDialect(ChatIdentity identity, const OpenAiChat& request);

  std::string whole(const ChatPiece& answer, const ChatEnd& end) override;
  std::string begin(const ChatUsage& prompt) override;
  std::string piece(const ChatPiece& piece) override;
  std::string end(const ChatEnd& end) override;
  std::string break_off(const ApiError& error) override;

 private:
  ChatIdentity identity_;
  bool with_logprobs_;
  bool include_usage_;
};

/// "stop", "length" or "tool_calls".
[[nodiscard]] std::string_view openai_finish_reason(const ChatEnd& end);
[[nodiscard]] nlohmann::ordered_json openai_usage(const ChatUsage& usage);
/// The `logprobs` of a choice.
[[nodiscard]] nlohmann::ordered_json openai_logprobs(const std::vector<ChatLogprob>& logprobs);

/// GET /v1/models and /v1/models/NAME.
struct ModelCard {
  std::string name;
  std::int64_t created = 0;
  std::int64_t max_seq = 0;
};
[[nodiscard]] std::string model_json(const ModelCard& card);
[[nodiscard]] std::string model_list_json(const std::vector<ModelCard>& cards);

}  // namespace lily
