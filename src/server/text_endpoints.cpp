#include "server/text_endpoints.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "server/anthropic.h"
#include "server/field_reader.h"
#include "server/json.h"
#include "server/openai.h"
#include "server/request_fields.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;
using Ids = std::variant<std::vector<TokenId>, ApiError>;

Ids ids_of(const ChatHandler& chat, const Tokenizer& tokenizer, const HttpRequest& request) {
  auto parsed = parse_body(request.body);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  const Json& json = std::get<Json>(parsed);
  if (json.is_object() && json.contains("messages")) {
    auto messages = parse_chat_request(request.body, chat.defaults());
    if (auto* error = std::get_if<ApiError>(&messages)) return std::move(*error);
    return chat.prompt(std::get<OpenAiChat>(messages).chat);
  }
  std::optional<ApiError> error;
  FieldReader fields(json, "", error);
  const char* name = fields.find("prompt") != nullptr ? "prompt" : "content";
  if (!error && fields.find(name) == nullptr) fields.fail("content", "expected a string, found nothing");
  std::string text;
  fields.string(name, text);
  if (error) return *std::move(error);
  return tokenizer.encode(text);
}

}  // namespace

HttpResponse tokenize(const ChatHandler& chat, const Tokenizer& tokenizer, std::int64_t max_seq,
                      const HttpRequest& request) {
  const Ids ids = ids_of(chat, tokenizer, request);
  if (const auto* error = std::get_if<ApiError>(&ids)) return error_response(*error);
  const auto& tokens = std::get<std::vector<TokenId>>(ids);
  return {.body = dump_json({{"tokens", tokens}, {"count", tokens.size()}, {"max_model_len", max_seq}})};
}

HttpResponse detokenize(const Tokenizer& tokenizer, const HttpRequest& request) {
  auto parsed = parse_body(request.body);
  if (const auto* error = std::get_if<ApiError>(&parsed)) return error_response(*error);
  std::optional<ApiError> error;
  FieldReader fields(std::get<Json>(parsed), "", error);
  const Json* list = fields.find("tokens");
  if (list == nullptr || !list->is_array()) {
    fields.fail("tokens",
                "expected an array of token ids, found " + (list == nullptr ? "nothing" : describe(*list)));
  }
  std::vector<TokenId> ids;
  for (std::size_t i = 0; !error && i < list->size(); ++i) {
    const Json& id = (*list)[i];
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() >= tokenizer.end()) {
      fields.fail(fmt::format("tokens[{}]", i), fmt::format("expected a token id from 0 to {}, found {}",
                                                            tokenizer.end() - 1, describe(id)));
      break;
    }
    ids.push_back(id.get<TokenId>());
  }
  if (error) return error_response(*error);
  const std::string text = tokenizer.decode(ids);
  return {.body = dump_json({{"content", text}, {"prompt", text}})};
}

HttpResponse count_tokens(const ChatHandler& chat, const HttpRequest& request) {
  auto parsed = parse_messages_request(request.body, chat.defaults());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return anthropic_error(*error);
  const Ids ids = chat.prompt(std::get<ChatRequest>(parsed));
  if (const auto* error = std::get_if<ApiError>(&ids)) return anthropic_error(*error);
  return {.body = dump_json({{"input_tokens", std::get<std::vector<TokenId>>(ids).size()}})};
}

}  // namespace lily
