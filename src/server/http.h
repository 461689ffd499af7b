// What an HTTP exchange is made of: a request, an answer, the limits both keep. No sockets.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lily {

struct HttpHeader {
  std::string name;
  std::string value;
};

struct HttpRequest {
  std::string id;      ///< ours, "req-..."; sent back as X-Request-Id
  std::string method;  ///< as sent, case-sensitive
  std::string path;    ///< canonical (see canonical_path)
  std::vector<HttpHeader> headers;
  std::string body;        ///< transfer coding removed
  bool http_1_1 = true;    ///< else HTTP/1.0: no chunked answers
  bool keep_alive = true;  ///< what the client asked for

  /// The first header of that name, in any case; null if there is none.
  [[nodiscard]] const std::string* header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::vector<HttpHeader> headers = {};
  bool close = false;  ///< the connection must not be used again
};

/// What a client may take from us: memory, time and connections.
struct HttpLimits {
  std::size_t header_bytes = 32U << 10U;        ///< request line and headers; more is 431
  std::size_t body_bytes = 32U << 20U;          ///< more is 413
  std::size_t connections = 512;                ///< one thread each; more get 503
  std::chrono::milliseconds handshake{10'000};  ///< of TLS; then the connection is closed
  std::chrono::milliseconds idle{60'000};   ///< without a byte of a request; then the connection is closed
  std::chrono::milliseconds head{10'000};   ///< from the first byte to the end of the headers; then 408
  std::chrono::milliseconds body{60'000};   ///< from the headers to the end of the body; then 408
  std::chrono::milliseconds write{30'000};  ///< a client that takes no byte for so long counts as gone
};

/// The standard phrase of a status.
[[nodiscard]] std::string_view http_reason(int status);

/// The path of a request target: no scheme, authority or query, runs of slashes as one, no slash at the end.
[[nodiscard]] std::string canonical_path(std::string_view target);

/// Whether two header names or tokens are the same, ASCII case aside.
[[nodiscard]] bool equal_ignoring_case(std::string_view a, std::string_view b);

/// `prefix` and 24 random letters and digits.
[[nodiscard]] std::string random_id(std::string_view prefix);

}  // namespace lily
