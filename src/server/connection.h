// One client's socket: reads and writes with deadlines, and the question whether the client is still there.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/byte_stream.h"

namespace lily {

enum class ReadOutcome {
  kData,         ///< input() has grown
  kEnd,          ///< the client will send nothing more
  kTimeout,      ///< the deadline passed
  kInterrupted,  ///< the interrupt descriptor became readable
  kFailed,       ///< the connection is broken
};

enum class HandshakeOutcome {
  kDone,
  kPlainText,  ///< an unencrypted request came instead; the connection now speaks the same way
  kFailed,     ///< the client is gone, too slow or speaks something else
};

enum class Peer {
  kThere,
  kHalfClosed,  ///< it has closed its sending side, or the whole socket: only an answer to further bytes
                ///< tells which
  kGone,        ///< it reset the connection
};

class Connection {
 public:
  using Clock = std::chrono::steady_clock;

  /// Owns the socket; makes it non-blocking, without Nagle's delay.
  Connection(int socket, std::unique_ptr<ByteStream> stream);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Bytes received and not yet used; the reader erases what it took.
  [[nodiscard]] std::string& input() { return input_; }

  /// Comes before all reads and writes.
  HandshakeOutcome handshake(Clock::time_point deadline, int interrupt);

  /// Waits for bytes until `deadline`, or until `interrupt` (a descriptor, -1 for none) is readable; bytes
  /// win.
  ReadOutcome read(Clock::time_point deadline, int interrupt = -1);

  /// Writes all of `bytes`; false if the client is gone or takes nothing for `patience`.
  bool write(std::string_view bytes, std::chrono::milliseconds patience);

  /// Looks without waiting. Bytes of a next request that arrive meanwhile are kept in input(), within reason.
  Peer peer();

  /// Ends our side and reads away what the client still sends, for a second at most: closing with unread
  /// bytes would reset the connection and could take the answer with it.
  void finish();

  /// Breaks off a read or write in another thread.
  void abort();

 private:
  using Progress = ByteStream::Progress;
  Progress receive();  // into input_
  // Until the stream can go on; what came instead.
  [[nodiscard]] std::optional<ReadOutcome> wait(Progress needs, Clock::time_point deadline,
                                                int interrupt) const;

  int socket_;
  std::unique_ptr<ByteStream> stream_;
  std::string input_;
  bool ended_ = false;
  bool failed_ = false;
};

}  // namespace lily
