#include "server/access.h"

#include <algorithm>
#include <fstream>

#include "server/anthropic.h"
#include "server/errors.h"

namespace lily {
namespace {

// Takes equally long wherever the texts differ.
bool equal_in_constant_time(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned>(static_cast<unsigned char>(a[i])) ^
                  static_cast<unsigned>(static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]));
  }
  return difference == 0;
}

std::string_view without_port(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

void send_error(const ApiError& error, const HttpRequest& request, ResponseWriter& writer) {
  HttpResponse response =
      request.path.starts_with("/v1/messages") ? anthropic_error(error) : error_response(error);
  if (error.status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  writer.send(response);
}

bool is_open(std::string_view path) {
  return path == "/" || path.starts_with("/page/") || path == "/health" || path.starts_with("/health/");
}

}  // namespace

Result<std::vector<std::string>> read_api_keys(const std::string& path) {
  std::ifstream file(path);
  if (!file) return fail(ErrorCode::kNotFound, "{}: cannot be read", path);
  std::vector<std::string> keys;
  for (std::string line; std::getline(file, line);) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos || line[begin] == '#') continue;
    keys.push_back(line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin));
  }
  if (keys.empty())
    return fail(ErrorCode::kInvalidArgument, "{}: expected one API key a line, found none", path);
  return keys;
}

bool Access::operator()(const HttpRequest& request, ResponseWriter& writer) const {
  if (const std::string* origin = request.header("Origin")) {
    if (!allows_origin(*origin, request)) {
      send_error({.status = 403,
                  .message = "web pages of " + *origin +
                             " may not use this server (--allow-origin names those that may)",
                  .type = "permission_error",
                  .code = "origin_not_allowed"},
                 request, writer);
      return false;
    }
    writer.add_headers({{"Access-Control-Allow-Origin", *origin}, {"Vary", "Origin"}});
    if (request.method == "OPTIONS" && request.header("Access-Control-Request-Method") != nullptr) {
      const std::string* wanted = request.header("Access-Control-Request-Headers");
      writer.send({.status = 204,
                   .headers = {{"Access-Control-Allow-Methods", "GET, HEAD, POST"},
                               {"Access-Control-Allow-Headers", wanted != nullptr ? *wanted : "*"},
                               {"Access-Control-Max-Age", "600"}}});
      return false;
    }
  }
  if (options_.keys.empty() || is_open(request.path) || has_key(request)) return true;
  send_error({.status = 401,
              .message = "expected an API key, as Authorization: Bearer KEY or X-Api-Key: KEY",
              .type = "authentication_error",
              .code = "invalid_api_key"},
             request, writer);
  return false;
}

bool Access::has_key(const HttpRequest& request) const {
  constexpr std::string_view kBearer = "Bearer ";
  std::string_view given;
  if (const std::string* header = request.header("Authorization")) {
    given = *header;
    if (given.size() < kBearer.size() || !equal_ignoring_case(given.substr(0, kBearer.size()), kBearer))
      return false;
    given.remove_prefix(kBearer.size());
  } else if (const std::string* key = request.header("X-Api-Key")) {
    given = *key;
  }
  bool found = false;
  for (const std::string& key : options_.keys) found = equal_in_constant_time(key, given) || found;
  return found;
}

bool Access::allows_origin(const std::string& origin, const HttpRequest& request) const {
  const auto is = [&](const std::string& allowed) { return allowed == "*" || allowed == origin; };
  if (std::ranges::any_of(options_.origins, is)) return true;
  const std::string* host = request.header("Host");
  const std::size_t scheme = origin.find("://");
  if (host == nullptr || scheme == std::string::npos) return false;
  return std::string_view(origin).substr(scheme + 3) == *host && is_ours(without_port(*host));
}

bool Access::is_ours(std::string_view host) const {
  return host == "localhost" || host == "127.0.0.1" || host == "[::1]" || host == host_ ||
         host == "[" + host_ + "]";
}

}  // namespace lily
