#include "server/http_parser.h"

#include <gtest/gtest.h>

namespace lily {
namespace {

// What became of the bytes: the request, or the status of the refusal, or neither when more are needed.
struct Parsed {
  std::optional<HttpRequest> request;
  int status = 0;
  std::string rest;
};

// Offers the bytes `step` at a time, as a network may.
Parsed parse(std::string_view bytes, std::size_t step, const HttpLimits& limits = {}) {
  HttpParser parser(limits);
  std::string buffer;
  Parsed out;
  for (std::size_t i = 0; i < bytes.size() && !parser.done() && !parser.error(); i += step) {
    buffer += bytes.substr(i, step);
    buffer.erase(0, parser.feed(buffer));
  }
  if (parser.error()) {
    out.status = parser.error()->status;
  } else if (parser.done()) {
    out.request = parser.take();
  }
  out.rest = buffer;
  return out;
}

int refusal(std::string_view bytes) {
  const int status = parse(bytes, bytes.size()).status;
  EXPECT_EQ(parse(bytes, 1).status, status) << "depends on how the bytes are cut: " << bytes;
  return status;
}

std::string body_of(std::string_view bytes) {
  for (const std::size_t step : {std::size_t{1}, std::size_t{3}, bytes.size()}) {
    const Parsed parsed = parse(bytes, step);
    EXPECT_TRUE(parsed.request.has_value())
        << "status " << parsed.status << ", step " << step << ": " << bytes;
    if (!parsed.request || step == bytes.size()) return parsed.request ? parsed.request->body : "(refused)";
  }
  return {};
}

const std::string kPost = "POST /x HTTP/1.1\r\nHost: a\r\n";

TEST(HttpParser, ReadsARequest) {
  const auto parsed = parse("GET /v1//models/?q=1 HTTP/1.1\r\nHost: a\r\nX-Y:  z \r\n\r\nGET ", 1000);
  ASSERT_TRUE(parsed.request);
  EXPECT_EQ(parsed.request->method, "GET");
  EXPECT_EQ(parsed.request->path, "/v1/models");
  EXPECT_EQ(*parsed.request->header("x-y"), "z");
  EXPECT_TRUE(parsed.request->keep_alive);
  EXPECT_EQ(parsed.rest, "GET ") << "the next request's bytes are left alone";
}

TEST(HttpParser, KeepsConnectionsAsTheVersionSays) {
  EXPECT_FALSE(parse("GET / HTTP/1.0\r\n\r\n", 99).request->keep_alive);
  EXPECT_TRUE(parse("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 99).request->keep_alive);
  EXPECT_FALSE(parse("GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 99).request->keep_alive);
  EXPECT_FALSE(parse("GET / HTTP/1.1\r\nConnection: foo, Close\r\n\r\n", 99).request->keep_alive);
}

TEST(HttpParser, ReadsBodiesOfKnownLength) {
  EXPECT_EQ(body_of(kPost + "Content-Length: 5\r\n\r\nhello"), "hello");
  EXPECT_EQ(body_of(kPost + "Content-Length: 0\r\n\r\n"), "");
  EXPECT_EQ(body_of(kPost + "\r\n"), "") << "no length is no body";
}

TEST(HttpParser, ReadsChunkedBodies) {
  const std::string chunked = kPost + "Transfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(body_of(chunked + "5\r\nhello\r\n0\r\n\r\n"), "hello");
  EXPECT_EQ(body_of(chunked + "1\r\nh\r\n1\r\ni\r\n0\r\n\r\n"), "hi");
  EXPECT_EQ(body_of(chunked + "5;name=value\r\nhello\r\n0;last\r\n\r\n"), "hello") << "extensions";
  EXPECT_EQ(body_of(chunked + "5\r\nhello\r\n0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n"), "hello") << "trailers";
  EXPECT_EQ(body_of(chunked + "A\r\n0123456789\r\n0\r\n\r\n"), "0123456789") << "hexadecimal";
}

TEST(HttpParser, RefusesBadChunks) {
  const std::string chunked = kPost + "Transfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(refusal(chunked + "xyz\r\nhello\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(refusal(chunked + "-5\r\nhello\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(refusal(chunked + "5\r\nhelloX\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(refusal(chunked + "FFFFFFFFFFFFFFFFF\r\n"), 400) << "beyond 64 bits";
  EXPECT_EQ(refusal(chunked + "FFFFFFFFFFFFFFFF\r\nx"), 413);
}

TEST(HttpParser, RefusesLengthsThatTwoReadersCouldReadDifferently) {
  for (const auto* headers :
       {"Content-Length: -1\r\n", "Content-Length: abc\r\n", "Content-Length: 5x\r\n",
        "Content-Length: 0x5\r\n", "Content-Length: +5\r\n", "Content-Length: 5.0\r\n", "Content-Length:\r\n",
        "Content-Length: 5, 6\r\n", "Content-Length: 99999999999999999999999\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n", "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"}) {
    EXPECT_EQ(refusal(kPost + headers + "\r\nhello"), 400) << headers;
  }
  EXPECT_EQ(refusal(kPost + "Transfer-Encoding: gzip, chunked\r\n\r\n"), 501);
  EXPECT_EQ(refusal(kPost + "Transfer-Encoding: chunked, gzip\r\n\r\n"), 501);
  EXPECT_EQ(refusal(kPost + "Transfer-Encoding: xchunked\r\n\r\n"), 501);
  EXPECT_EQ(refusal("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
}

TEST(HttpParser, RefusesWhatIsNotHttp) {
  EXPECT_EQ(refusal("\x16\x03\x01\x02\x01 hello TLS\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET /\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET / HTTP/2.0\r\n\r\n"), 505);
  EXPECT_EQ(refusal("GET  / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(refusal("G@T / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\nBad Name: x\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\nName : x\r\n\r\n"), 400);
  EXPECT_EQ(refusal("GET / HTTP/1.1\r\nNo colon\r\n\r\n"), 400);
}

TEST(HttpParser, KnowsTheExpectationAndNoOther) {
  HttpParser parser(HttpLimits{});
  parser.feed(kPost + "Expect: 100-Continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_TRUE(parser.head_done());
  EXPECT_FALSE(parser.done());
  EXPECT_TRUE(parser.expects_continue());
  EXPECT_EQ(refusal(kPost + "Expect: a-miracle\r\nContent-Length: 2\r\n\r\n{}"), 417);
}

TEST(HttpParser, RefusesCompressedBodies) {
  EXPECT_EQ(refusal(kPost + "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}"), 415);
  EXPECT_EQ(refusal(kPost + "Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\nnot a chunk\r\n"),
            415)
      << "the head is judged before the body";
  EXPECT_EQ(body_of(kPost + "Content-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}"), "{}");
}

TEST(HttpParser, HoldsItsLimits) {
  HttpLimits limits;
  limits.header_bytes = 200;
  limits.body_bytes = 10;
  const std::string long_header = "GET / HTTP/1.1\r\nX: " + std::string(300, 'x') + "\r\n\r\n";
  EXPECT_EQ(parse(long_header, 1, limits).status, 431);
  EXPECT_EQ(parse(long_header, 1000, limits).status, 431);
  EXPECT_EQ(parse("GET /" + std::string(300, 'x'), 1, limits).status, 431) << "no end in sight";
  EXPECT_EQ(parse(kPost + "Content-Length: 11\r\n\r\n", 1000, limits).status, 413) << "before a byte of it";
  EXPECT_TRUE(parse(kPost + "Content-Length: 10\r\n\r\n0123456789", 1000, limits).request);
  const std::string chunked = kPost + "Transfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(parse(chunked + "1;" + std::string(300, 'x'), 1, limits).status, 400) << "an endless chunk line";
  EXPECT_EQ(parse(chunked + "0\r\n" + std::string(300, 'x'), 1, limits).status, 400) << "endless trailers";
  EXPECT_EQ(parse(chunked + "6\r\n012345\r\n5\r\n01234\r\n0\r\n\r\n", 1, limits).status, 413);
}

}  // namespace
}  // namespace lily
