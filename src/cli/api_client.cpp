#include "cli/api_client.h"

#include <nlohmann/json.hpp>

#include "base/mmap.h"
#include "hub/http_connection.h"

namespace lily {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kQuoted = 300;  // bytes of an answer that an error repeats

Result<Json> parse(const std::string& text, const std::string& from) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return fail(ErrorCode::kCorrupt, "{}: expected JSON, found '{}'", from, text.substr(0, kQuoted));
  }
  return json;
}

// The first line of a file.
Result<std::string> first_line(const std::string& path) {
  LILY_TRY(const MappedFile file, MappedFile::open(path));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  return std::string(text.substr(0, text.find_first_of("\r\n")));
}

}  // namespace

Result<ApiClient> ApiClient::create(const std::string& base, const std::string& key_file) {
  ApiClient client;
  client.base_ = base;
  while (client.base_.ends_with('/')) client.base_.pop_back();
  if (!client.base_.starts_with("http://") && !client.base_.starts_with("https://")) {
    return fail(ErrorCode::kInvalidArgument, "expected a URL like http://127.0.0.1:8080, found '{}'", base);
  }
  if (!client.base_.ends_with("/v1")) client.base_ += "/v1";
  if (!key_file.empty()) {
    LILY_TRY(client.key_, first_line(key_file));
  }
  return client;
}

Result<Json> ApiClient::get(const std::string& path) const {
  return request_json(path, nullptr);
}

Result<Json> ApiClient::post(const std::string& path, const Json& body) const {
  const std::string sent = body.dump();
  return request_json(path, &sent);
}

Result<void> ApiClient::stream(const std::string& path, const Json& body,
                               const std::function<Result<void>(const Json&)>& on_event) const {
  std::string pending;
  const auto take_line = [&](std::string_view line) -> Result<void> {
    if (!line.starts_with("data:")) return {};
    line.remove_prefix(5);
    while (line.starts_with(' ')) line.remove_prefix(1);
    if (line.starts_with("[DONE]")) return {};
    LILY_TRY(const Json event, parse(std::string(line), base_ + path));
    return on_event(event);
  };
  const std::string sent = body.dump();
  return request(path, &sent, [&](std::string_view piece) -> Result<void> {
    pending += piece;
    for (std::size_t end = 0; (end = pending.find('\n')) != std::string::npos; pending.erase(0, end + 1)) {
      LILY_TRY_VOID(take_line(std::string_view(pending).substr(0, end)));
    }
    return {};
  });
}

Result<Json> ApiClient::request_json(const std::string& path, const std::string* body) const {
  std::string text;
  LILY_TRY_VOID(request(path, body, [&](std::string_view piece) -> Result<void> {
    text += piece;
    return {};
  }));
  return parse(text, base_ + path);
}

// A connection a request: several threads ask at once, and a server under measurement may take its time.
Result<void> ApiClient::request(const std::string& path, const std::string* body,
                                const OnData& on_data) const {
  HttpConnection connection({.token = key_, .may_be_silent = true});
  auto failure =
      connection.perform({.url = base_ + path, .json = body}, [&](std::span<const std::byte> bytes) {
        return on_data({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
      });
  if (failure) return std::move(failure->error);
  return {};
}

}  // namespace lily
