// One HTTP(S) request at a time, by libcurl: what all clients of ours share, its settings, timeouts and error
// texts. When to try again, and what an answer means, is theirs to say.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lily {

struct HttpSettings {
  std::string token;                        ///< sent to the first host alone, never to where it redirects
  const std::atomic<bool>* stop = nullptr;  ///< ends a transfer when it becomes true
  bool redirects = false;                   ///< whether they are followed, never back to plain text
  bool may_be_silent = false;  ///< a server that thinks before it answers; else half a minute ends it
};

struct HttpRequest {
  std::string url;
  std::string range = {};             ///< "0-99": these bytes
  const std::string* json = nullptr;  ///< posted; null: a GET
};

/// Why an attempt failed: the connection, a status but 200 and 206 (with the start of its body), or what took
/// the body.
struct HttpFailure {
  Error error;
  bool is_temporary = false;  ///< another attempt may do better
};

/// Kept open between requests. For one thread at a time.
class HttpConnection {
 public:
  explicit HttpConnection(HttpSettings settings);
  HttpConnection(HttpConnection&&) noexcept;
  HttpConnection& operator=(HttpConnection&&) = delete;
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;
  ~HttpConnection();

  /// What to do with the next bytes of a good answer; an error ends the transfer and is its failure.
  using Take = std::function<Result<void>(std::span<const std::byte>)>;
  [[nodiscard]] std::optional<HttpFailure> perform(const HttpRequest& request, const Take& take);

  /// Of the last answer.
  [[nodiscard]] long status() const;
  /// By its name in lower case; empty where there is none.
  [[nodiscard]] std::string_view header(const std::string& name) const;
  [[nodiscard]] bool stopped() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lily
