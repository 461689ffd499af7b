#include "server/connection.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace lily {
namespace {

constexpr std::size_t kReadBytes = 16U << 10U;
constexpr std::size_t kPipelinedBytes = 64U << 10U;  // read ahead of the request being answered

int milliseconds_until(Connection::Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Connection::Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000));
}

}  // namespace

Connection::Connection(int socket, std::unique_ptr<ByteStream> stream)
    : socket_(socket), stream_(std::move(stream)) {
  ::fcntl(socket_, F_SETFL, ::fcntl(socket_, F_GETFL) | O_NONBLOCK);
  const int on = 1;
  ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Connection::~Connection() {
  ::close(socket_);
}

HandshakeOutcome Connection::handshake(Clock::time_point deadline, int interrupt) {
  while (true) {
    const Progress progress = stream_->handshake().progress;
    if (progress == Progress::kDone) return HandshakeOutcome::kDone;
    if (progress == Progress::kPlainText) {
      stream_ = plain_stream(socket_);
      return HandshakeOutcome::kPlainText;
    }
    if (progress == Progress::kEnd || progress == Progress::kFailed || wait(progress, deadline, interrupt)) {
      return HandshakeOutcome::kFailed;
    }
  }
}

Connection::Progress Connection::receive() {
  const std::size_t before = input_.size();
  input_.resize(before + kReadBytes);
  const auto [progress, bytes] = stream_->receive(std::span(input_).subspan(before));
  input_.resize(before + bytes);
  ended_ = ended_ || progress == Progress::kEnd;
  failed_ = failed_ || progress == Progress::kFailed;
  return progress;
}

std::optional<ReadOutcome> Connection::wait(Progress needs, Clock::time_point deadline, int interrupt) const {
  const short event = needs == Progress::kNeedsWrite ? POLLOUT : POLLIN;
  std::array<pollfd, 2> waits = {{{socket_, event, 0}, {interrupt, POLLIN, 0}}};
  const int ready = ::poll(waits.data(), waits.size(), milliseconds_until(deadline));
  if (ready < 0 && errno != EINTR) return ReadOutcome::kFailed;
  if (ready == 0) return ReadOutcome::kTimeout;
  if (ready > 0 && waits[0].revents == 0) return ReadOutcome::kInterrupted;
  return std::nullopt;
}

ReadOutcome Connection::read(Clock::time_point deadline, int interrupt) {
  while (true) {
    const Progress progress = receive();
    if (progress == Progress::kDone) return ReadOutcome::kData;
    if (failed_) return ReadOutcome::kFailed;
    if (ended_) return ReadOutcome::kEnd;
    if (const auto instead = wait(progress, deadline, interrupt)) return *instead;
  }
}

bool Connection::write(std::string_view bytes, std::chrono::milliseconds patience) {
  while (!bytes.empty() && !failed_) {
    const auto [progress, sent] = stream_->send(bytes);
    bytes.remove_prefix(sent);
    if (progress == Progress::kDone) continue;
    const bool waits = progress == Progress::kNeedsRead || progress == Progress::kNeedsWrite;
    failed_ = !waits || wait(progress, Clock::now() + patience, -1).has_value();
  }
  return !failed_;
}

Peer Connection::peer() {
  while (!ended_ && !failed_ && input_.size() < kPipelinedBytes && receive() == Progress::kDone) {
  }
  pollfd look{socket_, 0, 0};
  if (::poll(&look, 1, 0) > 0 && (look.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) failed_ = true;
  if (failed_) return Peer::kGone;
  return ended_ ? Peer::kHalfClosed : Peer::kThere;
}

void Connection::finish() {
  stream_->end();
  ::shutdown(socket_, SHUT_WR);
  const auto deadline = Clock::now() + std::chrono::seconds(1);
  do {
    input_.clear();
  } while (Clock::now() < deadline && read(deadline) == ReadOutcome::kData);
}

void Connection::abort() {
  ::shutdown(socket_, SHUT_RDWR);
}

}  // namespace lily
