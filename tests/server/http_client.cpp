#include "tests/server/http_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>

namespace lily {

HttpClient::HttpClient(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  const timeval patience{10, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
}

HttpClient::~HttpClient() {
  if (socket_ >= 0) ::close(socket_);
}

void HttpClient::send(std::string_view bytes) const {
  ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

void HttpClient::half_close() const {
  ::shutdown(socket_, SHUT_WR);
}

void HttpClient::reset() {
  const linger now{1, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  ::close(socket_);
  socket_ = -1;
}

bool HttpClient::receive() {
  std::array<char, 4096> buffer{};
  const ssize_t count = ::recv(socket_, buffer.data(), buffer.size(), 0);
  if (count > 0) received_.append(buffer.data(), static_cast<std::size_t>(count));
  EXPECT_TRUE(count >= 0 || errno == ECONNRESET) << "the server is silent; so far: " << received_;
  return count > 0;
}

std::string HttpClient::read_to_end() {
  while (receive()) {
  }
  return std::exchange(received_, {});
}

std::string HttpClient::read_until(std::string_view marker) {
  while (received_.find(marker) == std::string::npos) {
    if (!receive()) {
      ADD_FAILURE() << "the server closed before '" << marker << "': " << received_;
      return std::exchange(received_, {});
    }
  }
  const std::size_t end = received_.find(marker) + marker.size();
  std::string head = received_.substr(0, end);
  received_.erase(0, end);
  return head;
}

std::string post(std::string_view path, std::string_view body) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n{}", path, body.size(),
                     body);
}

}  // namespace lily
