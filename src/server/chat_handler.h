// A chat request that a protocol has read, on its way to an answer in that protocol: whole or as a stream of
// events.
#pragma once

#include <memory>
#include <variant>

#include "engine/engine.h"
#include "server/chat_answer.h"
#include "server/chat_request.h"
#include "server/chat_session.h"
#include "server/constraints.h"
#include "server/http.h"
#include "server/response_writer.h"

namespace lily {

class ChatHandler {
 public:
  /// The engine's model has a tokenizer and a chat template; answers call it `model_name`.
  ChatHandler(Engine& engine, std::string model_name)
      : engine_(engine), model_name_(std::move(model_name)), constraints_(engine.model()) {}

  /// Thread-safe; returns when the answer is complete or the client has gone, which stops its generation.
  void handle(const ChatRequest& request, ChatDialect& dialect, ResponseWriter& writer) const;

  /// The ids that `request` gives the model.
  [[nodiscard]] std::variant<std::vector<TokenId>, ApiError> prompt(const ChatRequest& request) const;

  /// A fresh identity of this server's model; `prefix` is of the id.
  [[nodiscard]] ChatIdentity identity(std::string_view prefix) const;
  [[nodiscard]] ChatDefaults defaults() const;

 private:
  /// A request the engine has taken.
  struct Accepted {
    std::vector<TokenId> prompt;
    std::shared_ptr<Generation> generation;
  };
  [[nodiscard]] std::variant<Accepted, ApiError> submit(const ChatRequest& request) const;
  void answer_whole(ChatSession& session, ChatDialect& dialect, ResponseWriter& writer) const;
  void answer_stream(ChatSession& session, ChatDialect& dialect, ResponseWriter& writer) const;

  Engine& engine_;
  std::string model_name_;
  mutable Constraints constraints_;
};

}  // namespace lily
