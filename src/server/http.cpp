#include "server/http.h"

#include <algorithm>
#include <array>
#include <random>
#include <utility>

namespace lily {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, lower, lower);
}

const std::string* HttpRequest::header(std::string_view name) const {
  for (const HttpHeader& field : headers) {
    if (equal_ignoring_case(field.name, name)) return &field.value;
  }
  return nullptr;
}

std::string_view http_reason(int status) {
  static constexpr std::array<std::pair<int, std::string_view>, 19> kReasons = {{
      {200, "OK"},
      {204, "No Content"},
      {304, "Not Modified"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {408, "Request Timeout"},
      {413, "Content Too Large"},
      {415, "Unsupported Media Type"},
      {417, "Expectation Failed"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {500, "Internal Server Error"},
      {501, "Not Implemented"},
      {503, "Service Unavailable"},
      {505, "HTTP Version Not Supported"},
      {507, "Insufficient Storage"},
  }};
  const auto* found = std::ranges::find(kReasons, status, &std::pair<int, std::string_view>::first);
  return found != kReasons.end() ? found->second : "Unknown";
}

std::string canonical_path(std::string_view target) {
  // Absolute form, as sent to proxies: http://host/path
  if (const auto scheme = target.find("://"); scheme != std::string_view::npos && target.front() != '/') {
    const auto slash = target.find('/', scheme + 3);
    target = slash == std::string_view::npos ? "/" : target.substr(slash);
  }
  target = target.substr(0, target.find_first_of("?#"));
  std::string path;
  for (const char c : target) {
    if (c != '/' || path.empty() || path.back() != '/') path.push_back(c);
  }
  if (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string random_id(std::string_view prefix) {
  static constexpr std::string_view kAlphabet =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::random_device entropy;
  std::uniform_int_distribution<std::size_t> pick(0, kAlphabet.size() - 1);
  std::string id(prefix);
  for (int i = 0; i < 24; ++i) id.push_back(kAlphabet[pick(entropy)]);
  return id;
}

}  // namespace lily
