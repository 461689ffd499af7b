// OpenAI's responses API, the stateless part that agents use: a request parsed and validated, an answer and
// its events. Which fields mean what is docs/api.md.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <variant>

#include "server/chat_answer.h"
#include "server/chat_request.h"

namespace lily {

struct ResponsesRequest {
  ChatRequest chat = {};
  nlohmann::ordered_json echo = {};  ///< fields of the request that the answer repeats
};

std::variant<ResponsesRequest, ApiError> parse_responses_request(std::string_view body,
                                                                 const ChatDefaults& defaults);

class ResponsesDialect : public ChatDialect {
 public:
  /// `identity.id` is "resp_...".
  ResponsesDialect(ChatIdentity identity, const ResponsesRequest& request);

  std::string whole(const ChatPiece& answer, const ChatEnd& end) override;
  std::string begin(const ChatUsage& prompt) override;
  std::string piece(const ChatPiece& piece) override;
  std::string end(const ChatEnd& end) override;
  std::string break_off(const ApiError& error) override;

 private:
  enum class Item { kNone, kReasoning, kMessage, kCall };
  using Json = nlohmann::ordered_json;

  void open(Item kind, Json item, std::string& out);
  void close(const char* status, std::string& out);
  void add_text(const char* type, const std::string& text, std::string& out);
  [[nodiscard]] Json response(const char* status) const;
  /// The fields that events about the open item share.
  [[nodiscard]] Json place() const;
  std::string event(const char* type, Json fields);

  ChatIdentity identity_;
  Json echo_;
  Json output_ = Json::array();  // items so far, the open one last
  Item open_ = Item::kNone;
  std::int64_t sequence_ = 0;
};

}  // namespace lily
