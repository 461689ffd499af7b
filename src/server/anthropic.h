// Anthropic's messages: a request parsed and validated, an answer and its events. Which fields mean what is
// docs/api.md.
#pragma once

#include <string_view>
#include <variant>

#include "server/chat_answer.h"
#include "server/chat_request.h"

namespace lily {

std::variant<ChatRequest, ApiError> parse_messages_request(std::string_view body,
                                                           const ChatDefaults& defaults);

/// {"type": "error", "error": {"type", "message"}} with the error's status.
[[nodiscard]] HttpResponse anthropic_error(const ApiError& error);

class AnthropicDialect : public ChatDialect {
 public:
  /// `identity.id` is "msg_...".
  explicit AnthropicDialect(ChatIdentity identity) : identity_(std::move(identity)) {}

  std::string whole(const ChatPiece& answer, const ChatEnd& end) override;
  std::string begin(const ChatUsage& prompt) override;
  std::string piece(const ChatPiece& piece) override;
  std::string end(const ChatEnd& end) override;
  std::string break_off(const ApiError& error) override;
  [[nodiscard]] HttpResponse error(const ApiError& error) const override { return anthropic_error(error); }

 private:
  enum class Block { kNone, kThinking, kText, kTool };
  void open(Block kind, const nlohmann::ordered_json& start, std::string& out);
  void close(std::string& out);
  void delta(const nlohmann::ordered_json& delta, std::string& out) const;

  ChatIdentity identity_;
  Block block_ = Block::kNone;
  int index_ = -1;  // of the open block, or the last one
};

}  // namespace lily
