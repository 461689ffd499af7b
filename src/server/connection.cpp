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

Connection::Connection(int socket) : socket_(socket) {
  ::fcntl(socket_, F_SETFL, ::fcntl(socket_, F_GETFL) | O_NONBLOCK);
  const int on = 1;
  ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Connection::~Connection() {
  ::close(socket_);
}

bool Connection::receive() {
  const std::size_t before = input_.size();
  input_.resize(before + kReadBytes);
  const ssize_t count = ::recv(socket_, input_.data() + before, kReadBytes, 0);
  input_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  if (count > 0) return true;
  if (count == 0) {
    ended_ = true;
  } else if (errno != EAGAIN && errno != EINTR) {
    failed_ = true;
  }
  return false;
}

ReadOutcome Connection::read(Clock::time_point deadline, int interrupt) {
  while (true) {
    if (receive()) return ReadOutcome::kData;
    if (failed_) return ReadOutcome::kFailed;
    if (ended_) return ReadOutcome::kEnd;
    std::array<pollfd, 2> waits = {{{socket_, POLLIN, 0}, {interrupt, POLLIN, 0}}};
    const int ready = ::poll(waits.data(), waits.size(), milliseconds_until(deadline));
    if (ready < 0 && errno != EINTR) return ReadOutcome::kFailed;
    if (ready == 0) return ReadOutcome::kTimeout;
    if (ready > 0 && waits[0].revents == 0) return ReadOutcome::kInterrupted;
  }
}

bool Connection::write(std::string_view bytes, std::chrono::milliseconds patience) {
  while (!bytes.empty() && !failed_) {
    const ssize_t count = ::send(socket_, bytes.data(), bytes.size(), 0);
    if (count >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {
      pollfd wait{socket_, POLLOUT, 0};
      failed_ = ::poll(&wait, 1, static_cast<int>(patience.count())) == 0;
    } else if (errno != EINTR) {
      failed_ = true;
    }
  }
  return !failed_;
}

Peer Connection::peer() {
  while (!ended_ && !failed_ && input_.size() < kPipelinedBytes && receive()) {
  }
  pollfd look{socket_, 0, 0};
  if (::poll(&look, 1, 0) > 0 && (look.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) failed_ = true;
  if (failed_) return Peer::kGone;
  return ended_ ? Peer::kHalfClosed : Peer::kThere;
}

void Connection::finish() {
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
