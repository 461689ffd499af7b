// Logging to stderr, one line a message, through spdlog (kept out of this header: it costs a second a file).
#pragma once

#include <fmt/core.h>

#include <string_view>

#include "base/result.h"

namespace lily::log {

enum class Level { kDebug, kInfo, kWarn, kError, kOff };

/// "debug", "info", "warn", "error" or "off".
Result<Level> parse_level(std::string_view name);
void set_level(Level level);
[[nodiscard]] bool enabled(Level level);
void write(Level level, std::string_view message);

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kDebug)) write(Level::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kInfo)) write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kWarn)) write(Level::kWarn, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kError)) write(Level::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace lily::log
