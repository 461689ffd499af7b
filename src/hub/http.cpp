#include "hub/http.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <string_view>
#include <thread>

#include "checkpoint/report.h"

namespace lily {
namespace {

using std::chrono::milliseconds;

constexpr int kAttempts = 5;  ///< without a new byte
constexpr milliseconds kFirstPause{250};
constexpr milliseconds kLongestPause{30'000};

// "bytes 0-99/1234"
std::string content_range(const HttpRange& range, std::int64_t begin) {
  return fmt::format("bytes {}-{}/{}", begin, range.end - 1, range.total);
}

}  // namespace

HttpClient::HttpClient(HttpOptions options)
    : connection_({.token = std::move(options.token), .stop = options.stop, .redirects = true}) {}

// Waits before attempt number `attempt` (from 1): doubling, or what the server asks for.
void HttpClient::pause(int attempt) const {
  milliseconds time = std::min(kFirstPause * (1 << (attempt - 1)), kLongestPause);
  int seconds = 0;
  const std::string_view asked = connection_.header("retry-after");
  if (std::from_chars(asked.data(), asked.data() + asked.size(), seconds).ec == std::errc() && seconds > 0) {
    time = std::min<milliseconds>(std::chrono::seconds(seconds), kLongestPause);
  }
  const auto until = std::chrono::steady_clock::now() + time;
  while (!connection_.stopped() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(milliseconds(20));
  }
}

Result<std::string> HttpClient::get(const std::string& url, std::size_t limit) {
  std::string body;
  const auto take = [&](std::span<const std::byte> bytes) -> Result<void> {
    if (body.size() + bytes.size() > limit) {
      return fail(ErrorCode::kCorrupt, "{}: expected at most {} bytes, found more", url, limit);
    }
    body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  };
  for (int attempt = 1;; ++attempt) {
    body.clear();
    auto failure = connection_.perform({.url = url}, take);
    if (!failure) return body;
    if (!failure->is_temporary || attempt == kAttempts) return std::move(failure->error);
    pause(attempt);
  }
}

Result<void> HttpClient::get_range(const HttpRange& range, const HttpSink& sink) {
  std::int64_t at = range.begin;
  std::int64_t asked = at;
  const auto take = [&](std::span<const std::byte> bytes) -> Result<void> {
    const std::string_view found = connection_.header("content-range");
    // A server that does not know ranges may still send the whole, if that is what was asked for.
    const bool whole = connection_.status() == 200 && asked == 0 && range.end == range.total;
    if (!whole && (connection_.status() != 206 || found != content_range(range, asked))) {
      return fail(ErrorCode::kCorrupt, "{}: expected Content-Range '{}', found HTTP {} '{}'", range.url,
                  content_range(range, asked), connection_.status(), printable(found));
    }
    if (at + std::ssize(bytes) > range.end) {
      return fail(ErrorCode::kCorrupt, "{}: expected {} bytes, found more", range.url, range.total);
    }
    LILY_TRY_VOID(sink(at, bytes));
    at += std::ssize(bytes);
    return {};
  };
  for (int attempt = 1; at < range.end; ++attempt) {
    asked = at;
    auto failure =
        connection_.perform({.url = range.url, .range = fmt::format("{}-{}", at, range.end - 1)}, take);
    if (at > asked) attempt = 1;
    if (!failure && at == range.end) break;
    if (!failure) {
      failure = {.error = fail(ErrorCode::kCorrupt, "{}: expected bytes up to {}, the answer ended at {}",
                               range.url, range.end, at),
                 .is_temporary = true};
    }
    if (!failure->is_temporary || attempt == kAttempts) return std::move(failure->error);
    pause(attempt);
  }
  return {};
}

std::string percent_encoded(std::string_view text, bool slashes) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~").find(c) != std::string_view::npos || (c == '/' && slashes);
    if (plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

}  // namespace lily
