#include "hub/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>
#include <mutex>
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
constexpr long kConnectSeconds = 20;
constexpr long kSilenceSeconds = 30;
constexpr std::size_t kErrorText = 512;  ///< of a body that says what went wrong

bool is_success(long status) {
  return status == 200 || status == 206;
}
bool is_temporary(long status) {
  return status == 408 || status == 429 || status >= 500;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return out;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r' || text.back() == '\n')) {
    text.remove_suffix(1);
  }
  return text;
}

// "bytes 0-99/1234"
std::string content_range(const HttpRange& range, std::int64_t begin) {
  return fmt::format("bytes {}-{}/{}", begin, range.end - 1, range.total);
}

Error status_error(const std::string& url, long status, std::string_view text) {
  const ErrorCode code = status == 404                    ? ErrorCode::kNotFound
                         : status == 401 || status == 403 ? ErrorCode::kInvalidArgument
                                                          : ErrorCode::kIo;
  return fail(code, "{}: HTTP {}{}{}", url, status, text.empty() ? "" : ": ", printable(text));
}

}  // namespace

/// One request at a time, and what came back so far.
struct HttpClient::Connection {
  explicit Connection(HttpOptions with) : options(std::move(with)), curl(curl_easy_init()) {
    LILY_CHECK(curl != nullptr, "no curl handle");
  }
  ~Connection() { curl_easy_cleanup(curl); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  Connection(Connection&&) = delete;
  Connection& operator=(Connection&&) = delete;

  /// What to do with a body's bytes.
  using Take = std::function<Result<void>(std::span<const std::byte>)>;

  /// One attempt. Returns whether the transfer ended well; `failure` holds what is worth no other attempt.
  bool perform(const std::string& url, const std::string& byte_range, const Take& take_body) {
    curl_easy_reset(curl);
    status = 0;
    headers.clear();
    error_text.clear();
    failure.reset();
    take = &take_body;
    curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 10L);
    const char* protocols = url.starts_with("https:") ? "https" : "http,https";  // never back to plain text
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, protocols);
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, protocols);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "lily");
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, kSilenceSeconds);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error_buffer);
    error_buffer[0] = '\0';
    if (!options.token.empty()) {
      curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
      curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, options.token.c_str());
    }
    if (!byte_range.empty()) curl_easy_setopt(curl, CURLOPT_RANGE, byte_range.c_str());
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, &Connection::on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, this);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &Connection::on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, this);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &Connection::on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, this);
    code = curl_easy_perform(curl);
    if (stopped()) failure = fail(ErrorCode::kCancelled, "cancelled");
    return code == CURLE_OK && is_success(status) && !failure;
  }

  [[nodiscard]] bool stopped() const { return options.stop != nullptr && options.stop->load(); }

  /// Why the last attempt failed, where another one may do better; else `failure`.
  std::optional<Error> temporary(const std::string& url) {
    if (failure) return std::nullopt;
    if (status != 0 && !is_success(status)) {
      Error error = status_error(
          url, status,
          header("x-error-message").empty() ? std::string_view(error_text) : header("x-error-message"));
      if (is_temporary(status)) return error;
      failure = std::move(error);
      return std::nullopt;
    }
    const char* text = error_buffer[0] != '\0' ? error_buffer : curl_easy_strerror(code);
    Error error = fail(ErrorCode::kIo, "{}: {}", url, text);
    switch (code) {
      case CURLE_URL_MALFORMAT:
      case CURLE_UNSUPPORTED_PROTOCOL:
      case CURLE_TOO_MANY_REDIRECTS:
      case CURLE_PEER_FAILED_VERIFICATION:
        failure = std::move(error);
        return std::nullopt;
      default:
        return error;
    }
  }

  [[nodiscard]] std::string_view header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string_view() : found->second;
  }

  /// Waits before attempt number `attempt` (from 1): doubling, or what the server asks for.
  void pause(int attempt) const {
    milliseconds time = std::min(kFirstPause * (1 << (attempt - 1)), kLongestPause);
    int seconds = 0;
    const std::string_view asked = header("retry-after");
    if (std::from_chars(asked.data(), asked.data() + asked.size(), seconds).ec == std::errc() &&
        seconds > 0) {
      time = std::min<milliseconds>(std::chrono::seconds(seconds), kLongestPause);
    }
    const auto until = std::chrono::steady_clock::now() + time;
    while (!stopped() && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(milliseconds(20));
    }
  }

  static std::size_t on_header(char* data, std::size_t, std::size_t size, void* self) {
    auto& connection = *static_cast<Connection*>(self);
    const std::string_view line = trimmed({data, size});
    if (line.starts_with("HTTP/")) {  // of every answer, those that redirect included
      connection.headers.clear();
      connection.error_text.clear();
      const std::string_view rest = trimmed(line.substr(std::min(line.find(' '), line.size())));
      connection.status = 0;
      std::from_chars(rest.data(), rest.data() + rest.size(), connection.status);
      return size;
    }
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos) {
      connection.headers[lower(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
    }
    return size;
  }

  static std::size_t on_body(char* data, std::size_t, std::size_t size, void* self) {
    auto& connection = *static_cast<Connection*>(self);
    if (!is_success(connection.status)) {
      const std::size_t room = kErrorText - std::min(kErrorText, connection.error_text.size());
      connection.error_text.append(data, std::min(size, room));
      return size;
    }
    auto taken = (*connection.take)(std::as_bytes(std::span(data, size)));
    if (taken.ok()) return size;
    connection.failure = std::move(taken).error();
    return 0;
  }

  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<Connection*>(self)->stopped() ? 1 : 0;
  }

  HttpOptions options;
  CURL* curl;
  CURLcode code = CURLE_OK;
  long status = 0;
  std::map<std::string, std::string> headers;  ///< of the last answer, names in lower case
  std::string error_text;
  std::optional<Error> failure;
  const Take* take = nullptr;
  char error_buffer[CURL_ERROR_SIZE] = {};
};

HttpClient::HttpClient(HttpOptions options) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  connection_ = std::make_unique<Connection>(std::move(options));
}
HttpClient::HttpClient(HttpClient&&) noexcept = default;
HttpClient::~HttpClient() = default;

Result<std::string> HttpClient::get(const std::string& url, std::size_t limit) {
  std::string body;
  const Connection::Take take = [&](std::span<const std::byte> bytes) -> Result<void> {
    if (body.size() + bytes.size() > limit) {
      return fail(ErrorCode::kCorrupt, "{}: expected at most {} bytes, found more", url, limit);
    }
    body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  };
  for (int attempt = 1;; ++attempt) {
    body.clear();
    if (connection_->perform(url, "", take)) return body;
    std::optional<Error> error = connection_->temporary(url);
    if (!error) return std::move(*connection_->failure);
    if (attempt == kAttempts) return std::move(*error);
    connection_->pause(attempt);
  }
}

Result<void> HttpClient::get_range(const HttpRange& range, const HttpSink& sink) {
  std::int64_t at = range.begin;
  std::int64_t asked = at;
  const Connection::Take take = [&](std::span<const std::byte> bytes) -> Result<void> {
    const std::string_view found = connection_->header("content-range");
    // A server that does not know ranges may still send the whole, if that is what was asked for.
    const bool whole = connection_->status == 200 && asked == 0 && range.end == range.total;
    if (!whole && (connection_->status != 206 || found != content_range(range, asked))) {
      return fail(ErrorCode::kCorrupt, "{}: expected Content-Range '{}', found HTTP {} '{}'", range.url,
                  content_range(range, asked), connection_->status, printable(found));
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
    const bool ended = connection_->perform(range.url, fmt::format("{}-{}", at, range.end - 1), take);
    if (at > asked) attempt = 1;
    if (ended && at == range.end) break;
    std::optional<Error> error =
        ended ? fail(ErrorCode::kCorrupt, "{}: expected bytes up to {}, the answer ended at {}", range.url,
                     range.end, at)
              : connection_->temporary(range.url);
    if (!error) return std::move(*connection_->failure);
    if (attempt == kAttempts) return std::move(*error);
    connection_->pause(attempt);
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
