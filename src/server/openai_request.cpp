// The reading half of openai.h.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "server/chat_messages.h"
#include "server/chat_tools.h"
#include "server/openai.h"
#include "server/request_fields.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMaxTopLogprobs = 20;

void read_logprobs(FieldReader& fields, ChatRequest& out) {
  fields.boolean("logprobs", out.logprobs);
  std::int64_t top = 0;
  fields.integer("top_logprobs", {0, kMaxTopLogprobs}, top);
  if (top > 0 && !out.logprobs) fields.fail("top_logprobs", "needs logprobs: true");
  out.top_logprobs = static_cast<int>(top);
}

void read_streaming(FieldReader& fields, std::optional<ApiError>& error, OpenAiChat& out) {
  fields.boolean("stream", out.chat.stream);
  if (const Json* options = fields.find("stream_options")) {
    FieldReader(*options, "stream_options", error).boolean("include_usage", out.include_usage);
  }
}

void read_choices(FieldReader& fields) {
  std::int64_t choices = 1;
  fields.integer("n", {1, INT64_MAX}, choices);
  if (choices != 1) fields.refuse("n", fmt::format("expected 1 (one answer a request), found {}", choices));
}

}  // namespace

std::variant<OpenAiChat, ApiError> parse_chat_request(std::string_view body, const ChatDefaults& defaults) {
  auto parsed = parse_body(body);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  std::optional<ApiError> error;
  FieldReader fields(std::get<Json>(parsed), "", error);
  OpenAiChat request;
  ChatRequest& chat = request.chat;
  std::string model;
  fields.string("model", model);  // any name: there is one model
  read_sampling(fields, defaults, chat.sampling);
  read_timeout(fields, chat);
  read_max_tokens(fields, {"max_completion_tokens", "max_tokens"}, chat.max_tokens);
  read_stop(fields, "stop", chat.stop);
  read_logprobs(fields, chat);
  read_streaming(fields, error, request);
  read_thinking(fields, error, chat);
  read_choices(fields);
  read_tools(fields, error, chat.tools);
  read_response_format(fields, error, chat);
  if (error) return *std::move(error);
  const Json* messages = fields.find("messages");
  chat.messages =
      std::make_shared<const Json>(normalize_messages(messages != nullptr ? *messages : Json(), error));
  if (error) return *std::move(error);
  return request;
}

}  // namespace lily
