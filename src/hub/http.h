// HTTP(S) GET, with retries.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/result.h"
#include "hub/http_connection.h"

namespace lily {

struct HttpOptions {
  std::string token;                        ///< sent to the first host alone, never to where it redirects
  const std::atomic<bool>* stop = nullptr;  ///< ends a transfer when it becomes true
};

/// Part of a file of `total` bytes.
struct HttpRange {
  std::string url;
  std::int64_t begin = 0;
  std::int64_t end = 0;  ///< past the last byte
  std::int64_t total = 0;
};

/// Takes bytes of a range in order; `offset` is in the file.
using HttpSink = std::function<Result<void>(std::int64_t offset, std::span<const std::byte> bytes)>;

/// One connection, kept between calls. For one thread at a time.
///
/// A dropped connection, silence of half a minute and the statuses 408, 429 and 5xx are tried again, with
/// growing pauses, until five attempts in a row brought nothing new. Other statuses fail at once: kNotFound
/// for 404, kInvalidArgument for 401 and 403.
class HttpClient {
 public:
  explicit HttpClient(HttpOptions options);

  /// A body of at most `limit` bytes.
  Result<std::string> get(const std::string& url, std::size_t limit);
  /// Goes on behind what has arrived when a connection drops. kCorrupt for an answer that is not the range
  /// that was asked for, or of another total.
  Result<void> get_range(const HttpRange& range, const HttpSink& sink);

 private:
  void pause(int attempt) const;

  HttpConnection connection_;
};

/// For a path or, with `slashes` false, one segment of it.
[[nodiscard]] std::string percent_encoded(std::string_view text, bool slashes);

}  // namespace lily
