#include "server/byte_stream.h"

#include <sys/socket.h>
#include <sys/types.h>

#include <cerrno>

namespace lily {
namespace {

class PlainStream final : public ByteStream {
 public:
  explicit PlainStream(int socket) : socket_(socket) {}

  Step handshake() override { return {Progress::kDone}; }

  Step receive(std::span<char> into) override {
    const ssize_t count = ::recv(socket_, into.data(), into.size(), 0);
    if (count == 0) return {Progress::kEnd};
    return moved(count, Progress::kNeedsRead);
  }

  Step send(std::string_view bytes) override {
    return moved(::send(socket_, bytes.data(), bytes.size(), 0), Progress::kNeedsWrite);
  }

  void end() override {}  // the socket's own end says it

 private:
  static Step moved(ssize_t count, Progress otherwise) {
    if (count >= 0) return {Progress::kDone, static_cast<std::size_t>(count)};
    return {errno == EAGAIN || errno == EINTR ? otherwise : Progress::kFailed};
  }

  int socket_;
};

}  // namespace

std::unique_ptr<ByteStream> plain_stream(int socket) {
  return std::make_unique<PlainStream>(socket);
}

}  // namespace lily
