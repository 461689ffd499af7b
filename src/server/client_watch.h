// Whether the client still waits for an answer in the making. A vanished client and one that has only closed
// its sending side look alike until bytes are sent to them, so those get a ping: bytes the answer's format
// ignores.
#pragma once

#include <chrono>
#include <string_view>

#include "server/response_writer.h"

namespace lily {

class ClientWatch {
 public:
  /// `head` begins the answer if a ping is due before anything else; it outlives the watch.
  ClientWatch(ResponseWriter& writer, const HttpResponse& head) : writer_(writer), head_(head) {}

  /// To be asked at every step, and while waiting. A client that is there is pinged only in an answer already
  /// begun, after `kQuiet` without a byte; one that has closed its side, every `kProbe`. False: stop the
  /// work.
  bool alive(std::string_view ping);

  /// A piece of the answer.
  bool write(std::string_view piece);

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kQuiet{2000};
  static constexpr std::chrono::milliseconds kProbe{200};

  ResponseWriter& writer_;
  const HttpResponse& head_;
  Clock::time_point last_write_ = Clock::now();
};

}  // namespace lily
