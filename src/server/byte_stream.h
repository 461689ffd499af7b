// A client's bytes over a non-blocking socket, plain or encrypted. Nothing here waits: what cannot go on says
// what it needs.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

namespace lily {

class ByteStream {
 public:
  enum class Progress {
    kDone,        ///< at least a byte was moved, or the handshake is over
    kNeedsRead,   ///< nothing moves before the socket is readable
    kNeedsWrite,  ///< nothing moves before the socket is writable
    kEnd,         ///< the client will send nothing more
    kPlainText,   ///< of a handshake: the client speaks HTTP without encryption
    kFailed,      ///< the connection is broken
  };
  struct Step {
    Progress progress;
    std::size_t bytes = 0;
  };

  ByteStream() = default;
  virtual ~ByteStream() = default;
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  /// Until it is kDone, nothing else is called.
  virtual Step handshake() = 0;
  virtual Step receive(std::span<char> into) = 0;
  virtual Step send(std::string_view bytes) = 0;
  /// Says that we send nothing more; the socket's own end comes behind it.
  virtual void end() = 0;
};

/// The socket's bytes as they are. The socket stays the caller's.
[[nodiscard]] std::unique_ptr<ByteStream> plain_stream(int socket);

}  // namespace lily
