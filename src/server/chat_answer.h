// An answer in pieces, and how a protocol writes it: what the handler drives and each protocol's file
// implements.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/errors.h"
#include "server/http.h"

namespace lily {

struct ChatUsage {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::int64_t reasoning_tokens = 0;
};

/// One generated token's log-probability; `bytes` may be a fragment of a UTF-8 sequence.
struct ChatLogprob {
  struct Alternative {
    std::string bytes;
    float logprob = 0;
  };
  std::string bytes;
  float logprob = 0;
  std::vector<Alternative> top;
};

/// A part of one tool call; `id` and `name` stand in its first part alone.
struct ChatToolCall {
  int index = 0;
  std::string id;  ///< "call_..."
  std::string name;
  std::string arguments;  ///< of all parts together: the text of a JSON object
};

/// A piece of an answer, or all of it; in this order: reasoning, content, calls.
struct ChatPiece {
  std::string reasoning = {};
  std::string content = {};
  std::vector<ChatToolCall> calls = {};
  std::vector<ChatLogprob> logprobs = {};
  [[nodiscard]] bool empty() const {
    return reasoning.empty() && content.empty() && calls.empty() && logprobs.empty();
  }
  /// Adds what came after this piece.
  void append(ChatPiece next);
};

/// How an answer ended.
struct ChatEnd {
  enum class Reason { kStop, kStopString, kLength, kToolCalls };
  Reason reason = Reason::kStop;
  std::string stop_string = {};  ///< the one that was met
  ChatUsage usage = {};
};

/// One answer in one protocol's words. Used by one thread, for one answer: either whole(), or begin(),
/// piece()..., then end() or break_off().
class ChatDialect {
 public:
  ChatDialect() = default;
  virtual ~ChatDialect() = default;
  ChatDialect(const ChatDialect&) = delete;
  ChatDialect& operator=(const ChatDialect&) = delete;

  /// The body of an answer that is not streamed.
  virtual std::string whole(const ChatPiece& answer, const ChatEnd& end) = 0;

  /// The parts of a stream, as bytes of text/event-stream.
  virtual std::string begin(const ChatUsage& prompt) = 0;
  virtual std::string piece(const ChatPiece& piece) = 0;
  virtual std::string end(const ChatEnd& end) = 0;
  virtual std::string break_off(const ApiError& error) = 0;

  /// An error before the answer has begun.
  [[nodiscard]] virtual HttpResponse error(const ApiError& error) const { return error_response(error); }
};

/// What all parts of one answer share.
struct ChatIdentity {
  std::string id;
  std::int64_t created = 0;  ///< seconds since 1970
  std::string model;
};

}  // namespace lily
