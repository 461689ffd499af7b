// A socket for tests that have to say exactly which bytes go out, and see exactly which come back.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace lily {

class HttpClient {
 public:
  explicit HttpClient(std::uint16_t port);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void send(std::string_view bytes) const;
  void half_close() const;
  /// Closes with a reset instead of a farewell.
  void reset();

  /// All bytes until the server closes; fails the test after ten seconds.
  std::string read_to_end();
  /// All bytes until `marker` was received.
  std::string read_until(std::string_view marker);

 private:
  bool receive();
  int socket_;
  std::string received_;
};

/// "POST /echo" with a body, keep-alive.
std::string post(std::string_view path, std::string_view body);

}  // namespace lily
