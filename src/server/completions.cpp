#include "server/completions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "server/json.h"
#include "server/openai.h"
#include "server/request_fields.h"
#include "server/sse.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kDefaultMaxTokens = 16;  // OpenAI's
constexpr std::int64_t kMaxLogprobs = 20;

std::vector<TokenId> read_ids(FieldReader& fields, const Json& list, TokenId vocab_end) {
  std::vector<TokenId> ids;
  for (const Json& id : list) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() >= vocab_end) {
      fields.fail("prompt",
                  fmt::format("expected token ids from 0 to {}, found {}", vocab_end - 1, describe(id)));
      return {};
    }
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

// A text, token ids, or a list of one of either.
void read_prompt(FieldReader& fields, const ChatDefaults& defaults, const Tokenizer& tokenizer,
                 ChatRequest& out) {
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) return fields.fail("prompt", "expected a string or token ids, found nothing");
  if (prompt->is_array() && !prompt->empty() && !prompt->front().is_number()) {
    if (prompt->size() > 1) return fields.refuse("prompt", "expected one prompt a request, found several");
    prompt = &prompt->front();
  }
  if (prompt->is_string()) {
    out.prompt = tokenizer.encode(prompt->get_ref<const std::string&>());
  } else if (prompt->is_array()) {
    out.prompt = read_ids(fields, *prompt, defaults.vocab_end);
  } else {
    return fields.fail("prompt", "expected a string or token ids, found " + describe(*prompt));
  }
  if (out.prompt->empty()) fields.fail("prompt", "expected at least one token, found none");
}

void refuse_unsupported(FieldReader& fields) {
  for (const auto* name : {"n", "best_of"}) {
    std::int64_t count = 1;
    fields.integer(name, {1, INT64_MAX}, count);
    if (count != 1) fields.refuse(name, fmt::format("expected 1 (one answer a request), found {}", count));
  }
  bool echo = false;
  fields.boolean("echo", echo);
  if (echo) fields.refuse("echo", "not supported");
  std::string suffix;
  fields.string("suffix", suffix);
  if (!suffix.empty()) fields.refuse("suffix", "not supported");
}

double finite(float logprob) {
  return std::isfinite(logprob) ? std::max(logprob, -9999.0F) : -9999.0F;
}

}  // namespace

std::variant<Completion, ApiError> parse_completion_request(std::string_view body,
                                                            const ChatDefaults& defaults,
                                                            const Tokenizer& tokenizer) {
  auto parsed = parse_body(body);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  std::optional<ApiError> error;
  FieldReader fields(std::get<Json>(parsed), "", error);
  Completion request;
  ChatRequest& chat = request.chat;
  std::string model;
  fields.string("model", model);
  read_prompt(fields, defaults, tokenizer, chat);
  read_sampling(fields, defaults, chat.sampling);
  read_max_tokens(fields, {"max_tokens"}, chat.max_tokens);
  if (chat.max_tokens == 0) chat.max_tokens = kDefaultMaxTokens;
  read_stop(fields, "stop", chat.stop);
  if (const Json* logprobs = fields.find("logprobs"); logprobs != nullptr && *logprobs != Json(false)) {
    std::int64_t top = 0;
    fields.integer("logprobs", {0, kMaxLogprobs}, top);
    chat.logprobs = true;
    chat.top_logprobs = static_cast<int>(top);
  }
  fields.boolean("ignore_eos", chat.ignore_eos);
  fields.boolean("stream", chat.stream);
  if (const Json* options = fields.find("stream_options")) {
    FieldReader(*options, "stream_options", error).boolean("include_usage", request.include_usage);
  }
  read_response_format(fields, error, chat);
  refuse_unsupported(fields);
  if (error) return *std::move(error);
  return request;
}

CompletionDialect::CompletionDialect(ChatIdentity identity, const Completion& request)
    : identity_(std::move(identity)),
      with_logprobs_(request.chat.logprobs),
      include_usage_(request.include_usage) {}

Json CompletionDialect::choice(const ChatPiece& piece) {
  Json choice = {{"index", 0}, {"text", piece.content}};
  if (with_logprobs_) {
    Json tokens = Json::array();
    Json values = Json::array();
    Json tops = Json::array();
    Json offsets = Json::array();
    for (const ChatLogprob& entry : piece.logprobs) {
      tokens.push_back(entry.bytes);
      values.push_back(finite(entry.logprob));
      Json top = Json::object();
      for (const auto& other : entry.top) top[other.bytes] = finite(other.logprob);
      tops.push_back(std::move(top));
      offsets.push_back(offset_);
      offset_ += entry.bytes.size();
    }
    choice["logprobs"] = {
        {"tokens", tokens}, {"token_logprobs", values}, {"top_logprobs", tops}, {"text_offset", offsets}};
  }
  choice["finish_reason"] = nullptr;
  return choice;
}

namespace {

Json envelope(const ChatIdentity& identity, Json choices) {
  return {{"id", identity.id},
          {"object", "text_completion"},
          {"created", identity.created},
          {"model", identity.model},
          {"choices", std::move(choices)}};
}

}  // namespace

std::string CompletionDialect::whole(const ChatPiece& answer, const ChatEnd& end) {
  Json only = choice(answer);
  only["finish_reason"] = openai_finish_reason(end);
  Json out = envelope(identity_, Json::array({std::move(only)}));
  out["usage"] = openai_usage(end.usage);
  return dump_json(out);
}

std::string CompletionDialect::begin(const ChatUsage&) {
  return "";
}

std::string CompletionDialect::piece(const ChatPiece& piece) {
  return sse_event(dump_json(envelope(identity_, Json::array({choice(piece)}))));
}

std::string CompletionDialect::end(const ChatEnd& end) {
  Json last = {{"index", 0}, {"text", ""}, {"finish_reason", openai_finish_reason(end)}};
  std::string out = sse_event(dump_json(envelope(identity_, Json::array({std::move(last)}))));
  if (include_usage_) {
    Json usage = envelope(identity_, Json::array());
    usage["usage"] = openai_usage(end.usage);
    out += sse_event(dump_json(usage));
  }
  return out + sse_event("[DONE]");
}

std::string CompletionDialect::break_off(const ApiError& error) {
  return sse_event(error_json(error));
}

}  // namespace lily
