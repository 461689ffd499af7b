// Bytes to one HttpRequest. The grammar is Boost.Beast's (docs/dependencies.md says why); what we add are the
// rules that keep two readers of the same bytes from seeing two different requests.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include "server/errors.h"
#include "server/http.h"

namespace lily {

class HttpParser {
 public:
  explicit HttpParser(const HttpLimits& limits);
  ~HttpParser();
  HttpParser(const HttpParser&) = delete;
  HttpParser& operator=(const HttpParser&) = delete;

  /// Takes bytes from the front of `bytes` and returns how many; the rest has to be offered again with more
  /// behind it. After an error() nothing is taken, and the connection must be closed: where the next request
  /// starts is unknown.
  std::size_t feed(std::string_view bytes);

  [[nodiscard]] bool head_done() const;
  [[nodiscard]] bool done() const;
  /// The client waits for "100 Continue" before it sends the body.
  [[nodiscard]] bool expects_continue() const;
  /// 400, 413, 415, 417, 431, 501 or 505.
  [[nodiscard]] const std::optional<ApiError>& error() const { return error_; }

  /// The request, once done().
  HttpRequest take();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::optional<ApiError> error_;
  bool head_checked_ = false;
};

}  // namespace lily
