// Any bytes, in any pieces, give the same requests as in one piece, and no buffer outgrows the limits. (Which
// of several faults is named may depend on the pieces.)
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "server/http_parser.h"

namespace lily {
namespace {

constexpr std::size_t kMost = 1000;  // of headers, and of a body
constexpr std::size_t kPieces = 16;

struct Reading {
  std::vector<HttpRequest> requests;
  int refusal = 0;
};

// Reads request after request, as a connection does, `step` bytes at a time.
Reading read(std::string_view bytes, std::size_t step) {
  HttpLimits limits;
  limits.header_bytes = kMost;
  limits.body_bytes = kMost;
  Reading out;
  std::string input;
  auto parser = std::make_unique<HttpParser>(limits);
  for (std::size_t at = 0; at < bytes.size() && out.refusal == 0; at += step) {
    input += bytes.substr(at, step);
    while (true) {
      input.erase(0, parser->feed(input));
      LILY_CHECK(parser->done() || parser->error() || input.size() <= kMost + kPieces,
                 "{} bytes are held back", input.size());
      if (!parser->done() || parser->error()) break;
      out.requests.push_back(parser->take());
      parser = std::make_unique<HttpParser>(limits);
    }
    if (parser->error()) out.refusal = parser->error()->status;
  }
  return out;
}

bool same(const HttpRequest& a, const HttpRequest& b) {
  return a.method == b.method && a.path == b.path && a.body == b.body && a.keep_alive == b.keep_alive &&
         a.headers.size() == b.headers.size();
}

}  // namespace
}  // namespace lily

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  const auto whole = lily::read(bytes, bytes.size() + 1);
  const auto pieces = lily::read(bytes, data[0] % lily::kPieces + 1);
  // At the edge of a limit the pieces may decide.
  if (bytes.size() >= lily::kMost) return 0;
  LILY_CHECK(whole.requests.size() == pieces.requests.size(), "{} requests in one piece, {} in several",
             whole.requests.size(), pieces.requests.size());
  for (std::size_t i = 0; i < whole.requests.size(); ++i) {
    LILY_CHECK(lily::same(whole.requests[i], pieces.requests[i]), "request {} differs", i);
    LILY_CHECK(whole.requests[i].body.size() <= lily::kMost, "a body of {} bytes",
               whole.requests[i].body.size());
  }
  return 0;
}
