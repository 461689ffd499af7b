#include "server/http_parser.h"

#include <fmt/format.h>

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "base/check.h"

namespace lily {
namespace {

namespace http = boost::beast::http;
using boost::system::error_code;

std::string_view view(boost::beast::string_view text) {
  return {text.data(), text.size()};
}

ApiError bad_request(int status, std::string message) {
  return {.status = status, .message = std::move(message), .code = "bad_request"};
}

ApiError to_api_error(const error_code& code, const HttpLimits& limits) {
  if (code == http::error::header_limit) {
    return bad_request(431, fmt::format("request headers: expected at most {} bytes", limits.header_bytes));
  }
  if (code == http::error::body_limit || code == http::error::buffer_overflow) {
    return bad_request(413, fmt::format("request body: expected at most {} bytes", limits.body_bytes));
  }
  if (code == http::error::bad_version) return bad_request(505, "expected HTTP/1.0 or HTTP/1.1");
  return bad_request(400, "malformed HTTP request: " + code.message());
}

std::optional<ApiError> check_head(const http::request<http::string_body>& message) {
  // Beast takes a repeated length if it repeats the value; another server in front of us might not.
  if (message.count(http::field::content_length) > 1)
    return bad_request(400, "Content-Length: expected once");
  if (const auto coding = message.find(http::field::transfer_encoding); coding != message.end()) {
    if (message.version() < 11) return bad_request(400, "Transfer-Encoding: not defined in HTTP/1.0");
    if (!equal_ignoring_case(view(coding->value()), "chunked")) {
      return bad_request(501, "Transfer-Encoding: expected chunked alone");
    }
  }
  if (const auto expect = message.find(http::field::expect);
      expect != message.end() && !equal_ignoring_case(view(expect->value()), "100-continue")) {
    return bad_request(417, "Expect: only 100-continue is known");
  }
  if (const auto encoding = message.find(http::field::content_encoding);
      encoding != message.end() && !equal_ignoring_case(view(encoding->value()), "identity")) {
    return bad_request(415, "Content-Encoding: compressed request bodies are not supported");
  }
  return std::nullopt;
}

}  // namespace

struct HttpParser::Impl {
  explicit Impl(const HttpLimits& http_limits) : limits(http_limits) {
    parser.eager(true);
    parser.header_limit(static_cast<std::uint32_t>(limits.header_bytes));
    parser.body_limit(limits.body_bytes);
  }
  HttpLimits limits;
  http::request_parser<http::string_body> parser;
};

HttpParser::HttpParser(const HttpLimits& limits) : impl_(std::make_unique<Impl>(limits)) {}
HttpParser::~HttpParser() = default;

std::size_t HttpParser::feed(std::string_view bytes) {
  std::size_t taken = 0;
  while (!error_ && !done() && taken < bytes.size()) {
    error_code code;
    const auto rest = bytes.substr(taken);
    const std::size_t count = impl_->parser.put(boost::asio::buffer(rest.data(), rest.size()), code);
    taken += count;
    // The head is judged before the body, however the bytes were cut.
    if (head_done() && !head_checked_) {
      head_checked_ = true;
      error_ = check_head(impl_->parser.get());
    }
    if (!error_ && code && code != http::error::need_more) error_ = to_api_error(code, impl_->limits);
    if (code == http::error::need_more || count == 0) break;
  }
  // Beast takes body bytes as they come, but waits for the end of a chunk's line or a trailer however long it
  // is.
  if (!error_ && head_done() && !done() && bytes.size() - taken > impl_->limits.header_bytes) {
    error_ = bad_request(
        400, fmt::format("chunk header or trailers: expected at most {} bytes", impl_->limits.header_bytes));
  }
  return taken;
}

bool HttpParser::head_done() const {
  return impl_->parser.is_header_done();
}
bool HttpParser::done() const {
  return impl_->parser.is_done();
}

bool HttpParser::expects_continue() const {
  const auto& message = impl_->parser.get();
  return message.version() >= 11 && message.count(http::field::expect) > 0;
}

HttpRequest HttpParser::take() {
  LILY_CHECK(done() && !error_, "take() of an unfinished request");
  auto message = impl_->parser.release();
  HttpRequest request;
  request.method = std::string(view(message.method_string()));
  request.path = canonical_path(view(message.target()));
  request.http_1_1 = message.version() >= 11;
  request.keep_alive = message.keep_alive();
  for (const auto& field : message) {
    request.headers.push_back({std::string(view(field.name_string())), std::string(view(field.value()))});
  }
  request.body = std::move(message.body());
  return request;
}

}  // namespace lily
