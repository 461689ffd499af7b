// The terminal's three streams: checked writes to stdout, whole reads of stdin, and whether text may be
// styled.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace lily::console {

/// Writes all of `text` to stdout and flushes. A full disk or a closed pipe is an error.
Result<void> print(std::string_view text);

/// Everything on stdin, to its end.
Result<std::string> read_stdin();

[[nodiscard]] bool stdin_is_terminal();
[[nodiscard]] bool stdout_is_terminal();
[[nodiscard]] bool stderr_is_terminal();
/// Somebody sits in front of both stdin and stdout.
[[nodiscard]] bool interactive();
/// stdout is a terminal that understands escape codes, and NO_COLOR (no-color.org) is not set.
[[nodiscard]] bool styled();

/// What the program is busy with, on a line of stderr that is erased afterwards; on a terminal only.
class Status {
 public:
  explicit Status(std::string_view text = "");
  ~Status();
  Status(const Status&) = delete;
  Status& operator=(const Status&) = delete;
  void show(std::string_view text);

 private:
  std::string shown_;
};

/// `text` dimmed where styled() allows it.
[[nodiscard]] std::string dim(std::string_view text);

}  // namespace lily::console
