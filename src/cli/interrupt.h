// Ctrl-C as a flag that long jobs look at, in place of the end of the program.
#pragma once

#include <csignal>

#include "base/result.h"

namespace lily {

/// While an object lives, SIGINT only sets the flag, and system calls that wait return with EINTR; a second
/// one, before clear(), ends the program all the same. One object at a time.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  [[nodiscard]] bool pending() const;
  void clear();

 private:
  struct sigaction previous_{};
};

/// What a command returns when it was interrupted.
[[nodiscard]] Error interrupted();

}  // namespace lily
