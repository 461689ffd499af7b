// Who may use the server: API keys, and which web pages' scripts.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "server/response_writer.h"

namespace lily {

struct AccessOptions {
  std::vector<std::string> keys;     ///< one of them is asked for; empty: none is
  std::vector<std::string> origins;  ///< of web pages that may call us, "https://chat.example"; "*": all
};

/// One key a line; blank lines and lines that begin with # are skipped. kInvalidArgument for a file without a
/// key.
Result<std::vector<std::string>> read_api_keys(const std::string& path);

/// A gate for HttpServer. Keys come as `Authorization: Bearer KEY` or `X-Api-Key: KEY` and are asked for
/// everywhere but at /, /page/ and /health. A request that a browser makes for a page (it carries Origin) has
/// to come from an allowed page, or from one that this server served under a name of this machine: any page
/// can have its own name lead here.
class Access {
 public:
  /// `host` is what the server listens on.
  Access(AccessOptions options, std::string host) : options_(std::move(options)), host_(std::move(host)) {}

  bool operator()(const HttpRequest& request, ResponseWriter& writer) const;

 private:
  [[nodiscard]] bool has_key(const HttpRequest& request) const;
  [[nodiscard]] bool allows_origin(const std::string& origin, const HttpRequest& request) const;
  [[nodiscard]] bool is_ours(std::string_view host) const;

  AccessOptions options_;
  std::string host_;
};

}  // namespace lily
