#include "cli/api_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/mmap.h"

namespace lily {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kQuoted = 300;  // bytes of a refusal that an error repeats

struct CurlDeleter {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

// What libcurl's callback needs: where a good answer goes, and the start of a bad one.
struct Receiver {
  CURL* handle = nullptr;
  const std::function<bool(std::string_view)>* on_data = nullptr;
  std::string refusal;
};

std::size_t receive(const char* data, std::size_t size, std::size_t count, void* user) {
  auto& receiver = *static_cast<Receiver*>(user);
  const std::string_view piece(data, size * count);
  long status = 0;
  curl_easy_getinfo(receiver.handle, CURLINFO_RESPONSE_CODE, &status);
  if (status != 200) {
    receiver.refusal += piece.substr(0, kQuoted - std::min(kQuoted, receiver.refusal.size()));
    return piece.size();
  }
  return (*receiver.on_data)(piece) ? piece.size() : 0;
}

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
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (ready != CURLE_OK) return fail(ErrorCode::kInternal, "libcurl: {}", curl_easy_strerror(ready));
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
  std::string text;
  LILY_TRY_VOID(request(path, nullptr, [&](std::string_view piece) {
    text += piece;
    return true;
  }));
  return parse(text, base_ + path);
}

Result<Json> ApiClient::post(const std::string& path, const Json& body) const {
  std::string text;
  const std::string sent = body.dump();
  LILY_TRY_VOID(request(path, &sent, [&](std::string_view piece) {
    text += piece;
    return true;
  }));
  return parse(text, base_ + path);
}

Result<void> ApiClient::stream(const std::string& path, const Json& body,
                               const std::function<Result<void>(const Json&)>& on_event) const {
  std::string pending;
  std::optional<Error> error;
  const auto take_line = [&](std::string_view line) -> Result<void> {
    if (!line.starts_with("data:")) return {};
    line.remove_prefix(5);
    while (line.starts_with(' ')) line.remove_prefix(1);
    if (line.starts_with("[DONE]")) return {};
    LILY_TRY(const Json event, parse(std::string(line), base_ + path));
    return on_event(event);
  };
  const auto on_data = [&](std::string_view piece) {
    pending += piece;
    for (std::size_t end = 0; (end = pending.find('\n')) != std::string::npos; pending.erase(0, end + 1)) {
      if (auto taken = take_line(std::string_view(pending).substr(0, end)); !taken.ok()) {
        error = std::move(taken).error();
        return false;
      }
    }
    return true;
  };
  const std::string sent = body.dump();
  auto done = request(path, &sent, on_data);
  if (error) return *std::move(error);
  return done;
}

Result<void> ApiClient::request(const std::string& path, const std::string* body,
                                const OnData& on_data) const {
  const std::unique_ptr<CURL, CurlDeleter> handle(curl_easy_init());
  if (!handle) return fail(ErrorCode::kExhausted, "libcurl: out of memory");
  const std::string url = base_ + path;
  Receiver receiver{.handle = handle.get(), .on_data = &on_data, .refusal = {}};
  std::unique_ptr<curl_slist, CurlDeleter> headers(
      curl_slist_append(nullptr, "Content-Type: application/json"));
  if (!key_.empty()) {
    curl_slist_append(headers.get(), ("Authorization: Bearer " + key_).c_str());
  }
  curl_easy_setopt(handle.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(handle.get(), CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(handle.get(), CURLOPT_NOSIGNAL, 1L);  // requests run on several threads
  curl_easy_setopt(handle.get(), CURLOPT_CONNECTTIMEOUT, 10L);
  curl_easy_setopt(handle.get(), CURLOPT_WRITEFUNCTION, &receive);
  curl_easy_setopt(handle.get(), CURLOPT_WRITEDATA, &receiver);
  if (body != nullptr) {
    curl_easy_setopt(handle.get(), CURLOPT_POSTFIELDS, body->c_str());
    curl_easy_setopt(handle.get(), CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body->size()));
  }
  const CURLcode done = curl_easy_perform(handle.get());
  if (done != CURLE_OK) return fail(ErrorCode::kIo, "{}: {}", url, curl_easy_strerror(done));
  long status = 0;
  curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &status);
  if (status != 200) {
    return fail(ErrorCode::kIo, "{}: expected status 200, found {}: {}", url, status, receiver.refusal);
  }
  return {};
}

}  // namespace lily
