// POST /v1/chat/completions: a request in, an answer out, whole or as a stream of events.
#pragma once

#include "engine/engine.h"
#include "server/chat_session.h"
#include "server/http.h"
#include "server/openai.h"
#include "server/response_writer.h"

namespace lily {

class ChatHandler {
 public:
  /// The engine's model has a tokenizer and a chat template.
  ChatHandler(Engine& engine, ChatDefaults defaults);

  /// Thread-safe; returns when the answer is complete or the client has gone, which stops its generation.
  void handle(const HttpRequest& request, ResponseWriter& writer) const;

 private:
  /// A request the engine has taken.
  struct Accepted {
    std::vector<TokenId> prompt;
    std::shared_ptr<Generation> generation;
  };
  [[nodiscard]] std::variant<Accepted, ApiError> submit(const ChatRequest& request) const;
  void answer_whole(ChatSession& session, const ChatRequest& request, ResponseWriter& writer) const;
  void answer_stream(ChatSession& session, const ChatRequest& request, ResponseWriter& writer) const;
  [[nodiscard]] ChatIdentity identity() const;

  Engine& engine_;
  ChatDefaults defaults_;
};

}  // namespace lily
