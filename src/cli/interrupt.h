// Ctrl-C as a flag that long jobs look at, in place of the end of the program.
#pragma once

#include "base/result.h"

namespace lily {

/// While an object lives, SIGINT only sets the flag. One at a time. System calls that wait return with EINTR.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  [[nodiscard]] bool pending() const;
  void clear();
};

/// What a command returns when it was interrupted.
[[nodiscard]] Error interrupted();

}  // namespace lily
