#include "server/http_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <mutex>
#include <set>
#include <system_error>

#include "base/log.h"
#include "server/errors.h"
#include "server/http_parser.h"

namespace lily {
namespace {

using Clock = Connection::Clock;

// A pipe whose read end becomes readable, for any number of pollers and for good, when trip() is called.
class Tripwire {
 public:
  Tripwire() {
    LILY_CHECK(::pipe(ends_.data()) == 0, "pipe: {}", std::strerror(errno));
    for (const int end : ends_) ::fcntl(end, F_SETFD, FD_CLOEXEC);
  }
  ~Tripwire() {
    trip();
    ::close(ends_[0]);
  }
  Tripwire(const Tripwire&) = delete;
  Tripwire& operator=(const Tripwire&) = delete;

  void trip() {
    if (!tripped_.exchange(true)) ::close(ends_[1]);
  }
  [[nodiscard]] bool tripped() const { return tripped_; }
  [[nodiscard]] int descriptor() const { return ends_[0]; }

 private:
  std::array<int, 2> ends_{};
  std::atomic<bool> tripped_ = false;
};

bool matches(const HttpRoute& route, std::string_view path) {
  if (!route.path.ends_with("/*")) return route.path == path;
  const std::string_view stem = std::string_view(route.path).substr(0, route.path.size() - 1);
  return path.size() > stem.size() && path.starts_with(stem);
}

ApiError not_found(const HttpRequest& request) {
  return {.status = 404,
          .message = fmt::format("{} {}: no such endpoint", request.method, request.path),
          .code = "not_found"};
}

// For a known path: which methods it has.
HttpResponse wrong_method(const HttpRequest& request, const std::set<std::string>& allowed) {
  const std::string list = fmt::format("{}", fmt::join(allowed, ", "));
  HttpResponse response =
      error_response({.status = 405,
                      .message = fmt::format("{}: expected {}, found {}", request.path, list, request.method),
                      .code = "method_not_allowed"});
  response.headers.push_back({"Allow", list});
  return response;
}

void route(const std::vector<HttpRoute>& routes, const HttpRequest& request, ResponseWriter& writer) {
  const std::string_view wanted = request.method == "HEAD" ? "GET" : std::string_view(request.method);
  std::set<std::string> allowed;
  for (const HttpRoute& candidate : routes) {
    if (!matches(candidate, request.path)) continue;
    if (candidate.method == wanted) return candidate.handler(request, writer);
    allowed.insert(candidate.method);
    if (candidate.method == "GET") allowed.insert("HEAD");
  }
  writer.send(allowed.empty() ? error_response(not_found(request)) : wrong_method(request, allowed));
}

}  // namespace

struct HttpServer::Shared {
  std::vector<HttpRoute> routes;
  HttpLimits limits;
  HttpGate gate;
  std::shared_ptr<const TlsIdentity> tls;
  Tripwire draining;
  Tripwire stopping;

  std::mutex mutex;
  std::condition_variable idle;
  std::set<Connection*> connections;

  void run(Connection& connection);
  bool shake_hands(Connection& connection);
  void turn_away(Connection& connection, const std::string& reason);
  bool serve_one(Connection& connection, bool first);
  bool await_request(Connection& connection, bool first);
  std::optional<ApiError> read_request(Connection& connection, HttpParser& parser, bool& gone);
  bool answer(Connection& connection, const HttpRequest& request);
  void refuse(Connection& connection, const ApiError& error);
};

// A connection's thread: requests one after another, until the client closes, breaks the protocol or is asked
// to leave.
void HttpServer::Shared::run(Connection& connection) {
  bool first = true;
  while ((!first || shake_hands(connection)) && serve_one(connection, first)) first = false;
  const std::lock_guard lock(mutex);
  connections.erase(&connection);
  idle.notify_all();
}

bool HttpServer::Shared::shake_hands(Connection& connection) {
  switch (connection.handshake(Clock::now() + limits.handshake, stopping.descriptor())) {
    case HandshakeOutcome::kDone:
      return true;
    case HandshakeOutcome::kPlainText:
      refuse(connection, {.message = "this server speaks HTTPS: the URL has to begin with https://",
                          .code = "bad_request"});
      return false;
    case HandshakeOutcome::kFailed:
      break;
  }
  log::info("a connection ended within its TLS handshake");
  return false;
}

// On the accepting thread, so without waiting for the client in any way: not for a handshake either.
void HttpServer::Shared::turn_away(Connection& connection, const std::string& reason) {
  log::warn("connection refused: {}", reason);
  if (tls != nullptr) return;
  HttpRequest unread;
  unread.id = random_id("req-");
  ResponseWriter(connection, unread, limits, /*last=*/true)
      .send(error_response(
          {.status = 503, .message = reason, .type = "overloaded_error", .code = "overloaded"}));
}

bool HttpServer::Shared::serve_one(Connection& connection, bool first) {
  if (!await_request(connection, first)) return false;
  HttpParser parser(limits);
  bool gone = false;
  if (const auto error = read_request(connection, parser, gone)) {
    refuse(connection, *error);
    return false;
  }
  if (gone) return false;
  HttpRequest request = parser.take();
  request.id = random_id("req-");
  if (answer(connection, request)) return true;
  connection.finish();
  return false;
}

// An idle connection ends quietly. A drain ends it too, unless it is new: its client was about to ask
// something.
bool HttpServer::Shared::await_request(Connection& connection, bool first) {
  if (!connection.input().empty()) return true;
  const Tripwire& interrupt = first ? stopping : draining;
  return connection.read(Clock::now() + limits.idle, interrupt.descriptor()) == ReadOutcome::kData;
}

std::optional<ApiError> HttpServer::Shared::read_request(Connection& connection, HttpParser& parser,
                                                         bool& gone) {
  auto deadline = Clock::now() + limits.head;
  bool in_body = false;
  while (true) {
    connection.input().erase(0, parser.feed(connection.input()));
    if (parser.error()) return parser.error();
    if (parser.done()) return std::nullopt;
    if (parser.head_done() && !in_body) {
      in_body = true;
      deadline = Clock::now() + limits.body;
      if (parser.expects_continue()) connection.write("HTTP/1.1 100 Continue\r\n\r\n", limits.write);
    }
    switch (connection.read(deadline, stopping.descriptor())) {
      case ReadOutcome::kData:
        break;
      case ReadOutcome::kTimeout:
        return ApiError{
            .status = 408,
            .message = fmt::format("the request's {} did not arrive in time", in_body ? "body" : "head"),
            .code = "timeout"};
      case ReadOutcome::kEnd:
        return ApiError{.message = fmt::format("the request ended inside its {}", in_body ? "body" : "head"),
                        .code = "bad_request"};
      case ReadOutcome::kInterrupted:
      case ReadOutcome::kFailed:
        gone = true;
        return std::nullopt;
    }
  }
}

// Returns whether the connection may carry another request. The handlers are not supposed to throw; what does
// (memory ran out, say) costs this request alone.
bool HttpServer::Shared::answer(Connection& connection, const HttpRequest& request) {
  const auto start = Clock::now();
  ResponseWriter writer(connection, request, limits, draining.tripped());
  try {
    if (!gate || gate(request, writer)) route(routes, request, writer);
    LILY_CHECK(writer.begun() || writer.peer() == Peer::kGone, "{} {} was not answered", request.method,
               request.path);
  } catch (const std::exception& exception) {
    log::error("{} {} {}: {}", request.id, request.method, request.path, exception.what());
    if (!writer.begun())
      writer.send(error_response(to_api_error(fail(ErrorCode::kInternal, "{}", exception.what()))));
  }
  const auto elapsed = std::chrono::duration<double, std::milli>(Clock::now() - start);
  log::info("{} {} {} {} {:.1f} ms{}", request.id, request.method, request.path, writer.status(),
            elapsed.count(), writer.complete() ? "" : ", broken off");
  return writer.reusable();
}

// For what is not a request: there is no telling where the next one would start.
void HttpServer::Shared::refuse(Connection& connection, const ApiError& error) {
  HttpRequest unread;
  unread.id = random_id("req-");
  ResponseWriter(connection, unread, limits, /*last=*/true).send(error_response(error));
  log::info("{} {} {}", unread.id, error.status, error.message);
  connection.finish();
}

namespace {

struct AddressList {
  addrinfo* first = nullptr;
  ~AddressList() {
    if (first != nullptr) ::freeaddrinfo(first);
  }
};

Result<int> bind_and_listen(const HttpAddress& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  AddressList found;
  const std::string port = std::to_string(address.port);
  if (const int code = ::getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found.first); code != 0) {
    return fail(ErrorCode::kInvalidArgument, "{}: cannot listen: {}", address.host, ::gai_strerror(code));
  }
  std::string problem = "no address";
  for (const addrinfo* entry = found.first; entry != nullptr; entry = entry->ai_next) {
    const int listener = ::socket(entry->ai_family, entry->ai_socktype, entry->ai_protocol);
    if (listener < 0) continue;
    ::fcntl(listener, F_SETFD, FD_CLOEXEC);
    const int on = 1;
    ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(listener, entry->ai_addr, entry->ai_addrlen) == 0 && ::listen(listener, SOMAXCONN) == 0)
      return listener;
    problem = std::strerror(errno);
    ::close(listener);
  }
  return fail(ErrorCode::kIo, "{}:{}: cannot listen: {}", address.host, address.port, problem);
}

std::uint16_t bound_port(int listener) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&bound), &size);
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<sockaddr_in&>(bound).sin_port);
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpOptions options, std::vector<HttpRoute> routes) {
  // A write to a closed socket must be an error of that call, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  LILY_TRY(const int listener, bind_and_listen(options.address));
  std::unique_ptr<HttpServer> server(new HttpServer);
  server->listener_ = listener;
  server->port_ = bound_port(listener);
  server->shared_ = std::make_shared<Shared>();
  server->shared_->routes = std::move(routes);
  server->shared_->limits = options.limits;
  server->shared_->gate = std::move(options.gate);
  server->shared_->tls = std::move(options.tls);
  server->acceptor_ = std::thread(&HttpServer::accept_loop, server.get());
  return server;
}

HttpServer::~HttpServer() {
  stop(std::chrono::milliseconds(0));
}

void HttpServer::accept_loop() {
  ::fcntl(listener_, F_SETFL, ::fcntl(listener_, F_GETFL) | O_NONBLOCK);
  while (!shared_->stopping.tripped()) {
    std::array<pollfd, 2> waits = {{{listener_, POLLIN, 0}, {shared_->stopping.descriptor(), POLLIN, 0}}};
    ::poll(waits.data(), waits.size(), -1);
    const int socket = ::accept(listener_, nullptr, nullptr);
    if (socket >= 0) {
      ::fcntl(socket, F_SETFD, FD_CLOEXEC);
      admit(socket);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      log::warn("cannot accept a connection: {}", std::strerror(errno));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
}

void HttpServer::admit(int socket) {
  const auto connection = std::make_shared<Connection>(
      socket, shared_->tls != nullptr ? shared_->tls->stream(socket) : plain_stream(socket));
  const std::lock_guard lock(shared_->mutex);
  if (shared_->connections.size() >= shared_->limits.connections) {
    shared_->turn_away(*connection, fmt::format("all {} connections are taken", shared_->limits.connections));
    return;
  }
  try {
    std::thread([shared = shared_, connection] { shared->run(*connection); }).detach();
    shared_->connections.insert(connection.get());
  } catch (const std::system_error& error) {
    shared_->turn_away(*connection, fmt::format("no thread for this connection: {}", error.what()));
  }
}

void HttpServer::drain() {
  shared_->draining.trip();
}

void HttpServer::stop(std::chrono::milliseconds grace) {
  shared_->draining.trip();
  shared_->stopping.trip();
  if (acceptor_.joinable()) {
    acceptor_.join();
    ::close(listener_);
  }
  std::unique_lock lock(shared_->mutex);
  const auto all_gone = [&] { return shared_->connections.empty(); };
  if (shared_->idle.wait_for(lock, grace, all_gone)) return;
  for (Connection* connection : shared_->connections) connection->abort();
  shared_->idle.wait(lock, all_gone);
}

}  // namespace lily
