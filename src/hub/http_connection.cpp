#include "hub/http_connection.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>

#include "checkpoint/report.h"

namespace lily {
namespace {

constexpr long kConnectSeconds = 20;
constexpr long kSilenceSeconds = 30;
constexpr std::size_t kErrorText = 512;  ///< of a body that says what went wrong

bool is_success(long status) {
  return status == 200 || status == 206;
}
bool is_temporary(long status) {
  return status == 408 || status == 429 || status >= 500;
}
bool is_temporary(CURLcode code) {
  return code != CURLE_URL_MALFORMAT && code != CURLE_UNSUPPORTED_PROTOCOL &&
         code != CURLE_TOO_MANY_REDIRECTS && code != CURLE_PEER_FAILED_VERIFICATION;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return out;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r' || text.back() == '\n')) {
    text.remove_suffix(1);
  }
  return text;
}

Error status_error(const std::string& url, long status, std::string_view text) {
  const ErrorCode code = status == 404                    ? ErrorCode::kNotFound
                         : status == 401 || status == 403 ? ErrorCode::kInvalidArgument
                                                          : ErrorCode::kIo;
  return fail(code, "{}: HTTP {}{}{}", url, status, text.empty() ? "" : ": ", printable(text));
}

struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

}  // namespace

/// The handle, and what came back so far.
struct HttpConnection::State {
  explicit State(HttpSettings with) : settings(std::move(with)), curl(curl_easy_init()) {
    LILY_CHECK(curl != nullptr, "no curl handle");
  }
  ~State() { curl_easy_cleanup(curl); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  State(State&&) = delete;
  State& operator=(State&&) = delete;

  [[nodiscard]] bool stopped() const { return settings.stop != nullptr && settings.stop->load(); }

  [[nodiscard]] std::string_view header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string_view() : found->second;
  }

  void start(const Take& with) {
    curl_easy_reset(curl);
    status = 0;
    headers.clear();
    error_text.clear();
    refusal.reset();
    take = &with;
  }

  void set_request(const HttpRequest& request) {
    const char* protocols = request.url.starts_with("https:") ? "https" : "http,https";
    curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, protocols);
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, protocols);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, settings.redirects ? 1L : 0L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 10L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "lily");
    if (!settings.token.empty()) {
      curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
      curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, settings.token.c_str());
    }
    if (!request.range.empty()) curl_easy_setopt(curl, CURLOPT_RANGE, request.range.c_str());
    if (request.json == nullptr) return;
    if (!json_headers) json_headers.reset(curl_slist_append(nullptr, "Content-Type: application/json"));
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, json_headers.get());
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.json->size()));
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request.json->c_str());
  }

  void set_limits() {
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);  // requests run on several threads
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    if (settings.may_be_silent) return;
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, kSilenceSeconds);
  }

  void set_callbacks() {
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error_buffer);
    error_buffer[0] = '\0';
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, &State::on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, this);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &State::on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, this);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &State::on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, this);
  }

  /// What became of the attempt that libcurl ended with `code`.
  [[nodiscard]] std::optional<HttpFailure> outcome(const std::string& url, CURLcode code) {
    if (stopped()) return HttpFailure{.error = fail(ErrorCode::kCancelled, "cancelled")};
    if (refusal) return HttpFailure{.error = *std::move(refusal)};
    if (status != 0 && !is_success(status)) {
      const std::string_view said = header("x-error-message");
      return HttpFailure{.error = status_error(url, status, said.empty() ? error_text : said),
                         .is_temporary = is_temporary(status)};
    }
    if (code == CURLE_OK) return std::nullopt;
    const char* text = error_buffer[0] != '\0' ? error_buffer : curl_easy_strerror(code);
    return HttpFailure{.error = fail(ErrorCode::kIo, "{}: {}", url, text),
                       .is_temporary = is_temporary(code)};
  }

  static std::size_t on_header(char* data, std::size_t, std::size_t size, void* self) {
    auto& state = *static_cast<State*>(self);
    const std::string_view line = trimmed({data, size});
    if (line.starts_with("HTTP/")) {  // of every answer, those that redirect included
      state.headers.clear();
      state.error_text.clear();
      const std::string_view rest = trimmed(line.substr(std::min(line.find(' '), line.size())));
      state.status = 0;
      std::from_chars(rest.data(), rest.data() + rest.size(), state.status);
      return size;
    }
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos) {
      state.headers[lower(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
    }
    return size;
  }

  static std::size_t on_body(char* data, std::size_t, std::size_t size, void* self) {
    auto& state = *static_cast<State*>(self);
    if (!is_success(state.status)) {
      const std::size_t room = kErrorText - std::min(kErrorText, state.error_text.size());
      state.error_text.append(data, std::min(size, room));
      return size;
    }
    auto taken = (*state.take)(std::as_bytes(std::span(data, size)));
    if (taken.ok()) return size;
    state.refusal = std::move(taken).error();
    return 0;
  }

  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<State*>(self)->stopped() ? 1 : 0;
  }

  HttpSettings settings;
  CURL* curl;
  std::unique_ptr<curl_slist, FreeList> json_headers;
  long status = 0;
  std::map<std::string, std::string> headers;  ///< of the last answer, names in lower case
  std::string error_text;
  std::optional<Error> refusal;  ///< of who takes the body
  const Take* take = nullptr;
  char error_buffer[CURL_ERROR_SIZE] = {};
};

HttpConnection::HttpConnection(HttpSettings settings) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  state_ = std::make_unique<State>(std::move(settings));
}
HttpConnection::HttpConnection(HttpConnection&&) noexcept = default;
HttpConnection::~HttpConnection() = default;

std::optional<HttpFailure> HttpConnection::perform(const HttpRequest& request, const Take& take) {
  state_->start(take);
  state_->set_request(request);
  state_->set_limits();
  state_->set_callbacks();
  return state_->outcome(request.url, curl_easy_perform(state_->curl));
}

long HttpConnection::status() const {
  return state_->status;
}
std::string_view HttpConnection::header(const std::string& name) const {
  return state_->header(name);
}
bool HttpConnection::stopped() const {
  return state_->stopped();
}

}  // namespace lily
