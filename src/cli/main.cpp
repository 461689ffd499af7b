// The program: arguments to a command, its error to one line on stderr and an exit code.
#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <new>

#include "base/log.h"
#include "cli/command_line.h"
#include "cli/console.h"

namespace {

using lily::Error;
using lily::ErrorCode;
using lily::Result;

// 1: it failed; 2: the arguments cannot be meant; 130: interrupted, as shells have it.
int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return 2;
    case ErrorCode::kCancelled:
      return 130;
    default:
      return 1;
  }
}

Result<void> run(const std::vector<std::string>& arguments) {
  LILY_TRY(const lily::Invocation invocation, lily::parse_command_line(arguments));
  if (invocation.command == nullptr) return lily::console::print(invocation.text);
  LILY_TRY(const lily::log::Level level, lily::log::parse_level(invocation.options.log_level));
  lily::log::set_level(level);
  return invocation.command->run(invocation.options);
}

// Memory is what the standard library may refuse at any time; the rest would be a bug of ours.
Result<void> run_guarded(const std::vector<std::string>& arguments) {
  try {
    return run(arguments);
  } catch (const std::bad_alloc&) {
    return lily::fail(ErrorCode::kExhausted, "out of memory");
  } catch (const std::exception& error) {
    return lily::fail(ErrorCode::kInternal, "internal error: {}", error.what());
  }
}

// One line, whatever the message holds.
void report(const Error& error) {
  std::string line = error.message;
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  fmt::print(stderr, "lily: {}\n", line);
}

}  // namespace

int main(int argc, char** argv) {
  const auto done = run_guarded(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
  if (done.ok()) return 0;
  report(done.error());
  return exit_code(done.error().code);
}
