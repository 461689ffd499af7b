// Server-sent events: the framing of a streamed answer.
#pragma once

#include <string>
#include <string_view>

namespace lily {

/// One event. `data` is a single line: JSON text has no raw line breaks.
[[nodiscard]] inline std::string sse_event(std::string_view data) {
  return std::string("data: ").append(data).append("\n\n");
}

/// One with a name.
[[nodiscard]] inline std::string sse_event(std::string_view name, std::string_view data) {
  return std::string("event: ").append(name).append("\ndata: ").append(data).append("\n\n");
}

/// A line that clients skip; it keeps proxies and idle timers quiet.
[[nodiscard]] inline std::string sse_comment(std::string_view text) {
  return std::string(": ").append(text).append("\n\n");
}

}  // namespace lily
