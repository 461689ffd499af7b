// The listening socket and its connections: a thread accepts, a thread a connection reads requests, finds the
// route and lets its handler answer. Everything a client can do wrong at this level is answered here.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "server/http.h"
#include "server/response_writer.h"
#include "server/tls.h"

namespace lily {

using HttpHandler = std::function<void(const HttpRequest&, ResponseWriter&)>;

/// A handler for one method of one canonical path; a path that ends in "/*" stands for everything below it.
/// HEAD is answered through GET. Handlers run on connection threads, several at once.
struct HttpRoute {
  std::string method;
  std::string path;
  HttpHandler handler;
};

/// Looks at every request before its route is found: true lets it on, false has answered it.
using HttpGate = std::function<bool(const HttpRequest&, ResponseWriter&)>;

struct HttpAddress {
  std::string host = "127.0.0.1";  ///< a name or a numeric address
  std::uint16_t port = 8080;       ///< 0: any free one
};

struct HttpOptions {
  HttpAddress address = {};
  HttpLimits limits = {};
  HttpGate gate = {};
  std::shared_ptr<const TlsIdentity> tls = {};  ///< null: connections are not encrypted
};

class HttpServer {
 public:
  /// Binds and starts to serve. Errors name the address.
  static Result<std::unique_ptr<HttpServer>> start(HttpOptions options, std::vector<HttpRoute> routes);
  ~HttpServer();  ///< stop(0)

  [[nodiscard]] std::uint16_t port() const { return port_; }

  /// From here on each answer is the last of its connection, and idle connections close. New ones are still
  /// served.
  void drain();

  /// Accepts nothing more, waits until the answers under way are written, and breaks them off after `grace`.
  void stop(std::chrono::milliseconds grace);

 private:
  struct Shared;
  HttpServer() = default;
  void accept_loop();
  void admit(int socket);

  std::shared_ptr<Shared> shared_;  // outlives us in connection threads that are about to end
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::thread acceptor_;
};

}  // namespace lily
