#include "cli/console.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace lily::console {

Result<void> print(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return fail(ErrorCode::kIo, "stdout: cannot write: {}", std::strerror(errno));
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

Result<std::string> read_stdin() {
  std::string text;
  std::array<char, 1 << 16> buffer;
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail(ErrorCode::kIo, "stdin: cannot read: {}", std::strerror(errno));
    if (count == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

bool stdin_is_terminal() {
  return ::isatty(STDIN_FILENO) != 0;
}
bool stdout_is_terminal() {
  return ::isatty(STDOUT_FILENO) != 0;
}
bool stderr_is_terminal() {
  return ::isatty(STDERR_FILENO) != 0;
}

bool interactive() {
  return stdin_is_terminal() && stdout_is_terminal();
}

bool styled() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return stdout_is_terminal() && (no_color == nullptr || *no_color == '\0') && term != nullptr &&
         std::string_view(term) != "dumb";
}

Status::Status(std::string_view text) {
  show(text);
}

Status::~Status() {
  show("");
}

void Status::show(std::string_view text) {
  if (text == shown_ || !stderr_is_terminal()) return;
  shown_ = text;
  fmt::print(stderr, "\r{}\x1b[K", text);
  std::fflush(stderr);
}

std::string dim(std::string_view text) {
  return styled() ? fmt::format("\x1b[2m{}\x1b[0m", text) : std::string(text);
}

}  // namespace lily::console
