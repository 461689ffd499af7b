// The answer to one request, written once: whole, or piece by piece as it comes about.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/connection.h"
#include "server/http.h"

namespace lily {

class ResponseWriter {
 public:
  /// `last`: the connection closes after this answer.
  ResponseWriter(Connection& connection, const HttpRequest& request, const HttpLimits& limits, bool last);

  /// Headers that the answer will have whatever it is.
  void add_headers(std::vector<HttpHeader> headers) { headers_ = std::move(headers); }

  /// The whole answer.
  void send(const HttpResponse& response);

  /// Begins an answer whose body (`head.body` is its start) comes in pieces. The pieces are chunks, or plain
  /// bytes up to the connection's end for HTTP/1.0 and for a client that has closed its sending side.
  void begin(const HttpResponse& head);
  /// Each returns false once the client is gone: nothing more needs to be made.
  bool write(std::string_view piece);
  bool end();

  [[nodiscard]] bool begun() const { return status_ != 0; }
  [[nodiscard]] int status() const { return status_; }  ///< 0 until something was sent
  [[nodiscard]] bool complete() const { return complete_; }
  /// Whether another request may follow on this connection.
  [[nodiscard]] bool reusable() const { return complete_ && !last_ && alive_; }

  /// Whether the client is still there, without waiting.
  Peer peer();

 private:
  enum class Framing { kLength, kChunked, kUntilClose };
  [[nodiscard]] std::string head(const HttpResponse& response, Framing framing) const;
  bool put(std::string_view bytes);

  Connection& connection_;
  const HttpRequest& request_;
  const HttpLimits& limits_;
  std::vector<HttpHeader> headers_;
  Framing framing_ = Framing::kLength;
  int status_ = 0;
  bool last_;
  bool complete_ = false;
  bool alive_ = true;
};

}  // namespace lily
