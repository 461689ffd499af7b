#include "server/response_writer.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <iterator>

#include "base/check.h"

namespace lily {

ResponseWriter::ResponseWriter(Connection& connection, const HttpRequest& request, const HttpLimits& limits,
                               bool last)
    : connection_(connection), request_(request), limits_(limits), last_(last || !request.keep_alive) {}

std::string ResponseWriter::head(const HttpResponse& response, Framing framing) const {
  std::string text;
  auto out = std::back_inserter(text);
  fmt::format_to(out, "HTTP/1.1 {} {}\r\n", response.status, http_reason(response.status));
  fmt::format_to(out, "Date: {:%a, %d %b %Y %H:%M:%S} GMT\r\n", fmt::gmtime(std::time(nullptr)));
  fmt::format_to(out, "Content-Type: {}\r\n", response.content_type);
  if (framing == Framing::kLength) fmt::format_to(out, "Content-Length: {}\r\n", response.body.size());
  if (framing == Framing::kChunked) text += "Transfer-Encoding: chunked\r\n";
  for (const auto* fields : {&response.headers, &headers_}) {
    for (const HttpHeader& field : *fields) fmt::format_to(out, "{}: {}\r\n", field.name, field.value);
  }
  fmt::format_to(out, "X-Request-Id: {}\r\n", request_.id);
  if (last_) {
    text += "Connection: close\r\n";
  } else if (!request_.http_1_1) {
    text += "Connection: keep-alive\r\n";
  }
  text += "\r\n";
  return text;
}

void ResponseWriter::send(const HttpResponse& response) {
  LILY_CHECK(!begun(), "second answer to {}", request_.id);
  status_ = response.status;
  last_ = last_ || response.close;
  std::string bytes = head(response, Framing::kLength);
  // Both say the length of what a GET would have brought.
  if (request_.method != "HEAD" && response.status != 304) bytes += response.body;
  put(bytes);
  complete_ = true;
}

void ResponseWriter::begin(const HttpResponse& response) {
  LILY_CHECK(!begun(), "second answer to {}", request_.id);
  status_ = response.status;
  const bool chunked = request_.http_1_1 && connection_.peer() == Peer::kThere;
  framing_ = chunked ? Framing::kChunked : Framing::kUntilClose;
  last_ = last_ || response.close || !chunked;
  put(head(response, framing_));
  if (!response.body.empty()) write(response.body);
}

bool ResponseWriter::write(std::string_view piece) {
  LILY_CHECK(begun() && !complete_ && !piece.empty(), "a piece of {} bytes outside an answer", piece.size());
  if (framing_ == Framing::kUntilClose) return put(piece);
  return put(fmt::format("{:x}\r\n{}\r\n", piece.size(), piece));
}

bool ResponseWriter::end() {
  complete_ = true;
  return framing_ == Framing::kChunked ? put("0\r\n\r\n") : alive_;
}

bool ResponseWriter::put(std::string_view bytes) {
  alive_ = alive_ && connection_.write(bytes, limits_.write);
  return alive_;
}

Peer ResponseWriter::peer() {
  return alive_ ? connection_.peer() : Peer::kGone;
}

}  // namespace lily
