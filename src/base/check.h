// LILY_CHECK: aborts with a formatted message when one of our own invariants is broken. Never for outside
// input.
#pragma once

#include <fmt/core.h>

#include <string>

namespace lily {

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);

}  // namespace lily

#define LILY_CHECK(condition, ...)                                                      \
  do {                                                                                  \
    if (!(condition)) [[unlikely]]                                                      \
      ::lily::check_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
  } while (false)
