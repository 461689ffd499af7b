#include "server/routes.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>

#include "server/anthropic.h"
#include "server/completions.h"
#include "server/errors.h"
#include "server/json.h"
#include "server/openai.h"
#include "server/openapi.h"
#include "server/page.h"
#include "server/responses.h"
#include "server/text_endpoints.h"

namespace lily {
namespace {

HttpResponse health(const Engine& engine, const std::string& model, bool draining) {
  const Engine::Stats stats = engine.stats();
  HttpResponse response{.status = draining ? 503 : 200};
  response.body = dump_json({{"status", draining ? "draining" : "ok"},
                             {"model", model},
                             {"running", stats.running},
                             {"queued", stats.queued}});
  return response;
}

// A body that is no JSON may have been cut by a wrong length: what follows is not to be read as a request.
HttpResponse refuse(const ApiError& error, HttpResponse response) {
  response.close = error.code == "invalid_json";
  return response;
}

void chat_completions(const ChatHandler& chat, const HttpRequest& request, ResponseWriter& writer) {
  const auto parsed = parse_chat_request(request.body, chat.defaults());
  if (const auto* error = std::get_if<ApiError>(&parsed))
    return writer.send(refuse(*error, error_response(*error)));
  const auto& openai = std::get<OpenAiChat>(parsed);
  OpenAiDialect dialect(chat.identity("chatcmpl-"), openai);
  chat.handle(openai.chat, dialect, writer);
}

void completions(const ChatHandler& chat, const Tokenizer& tokenizer, const HttpRequest& request,
                 ResponseWriter& writer) {
  const auto parsed = parse_completion_request(request.body, chat.defaults(), tokenizer);
  if (const auto* error = std::get_if<ApiError>(&parsed))
    return writer.send(refuse(*error, error_response(*error)));
  const auto& completion = std::get<Completion>(parsed);
  CompletionDialect dialect(chat.identity("cmpl-"), completion);
  chat.handle(completion.chat, dialect, writer);
}

void responses(const ChatHandler& chat, const HttpRequest& request, ResponseWriter& writer) {
  const auto parsed = parse_responses_request(request.body, chat.defaults());
  if (const auto* error = std::get_if<ApiError>(&parsed))
    return writer.send(refuse(*error, error_response(*error)));
  const auto& response = std::get<ResponsesRequest>(parsed);
  ResponsesDialect dialect(chat.identity("resp_"), response);
  chat.handle(response.chat, dialect, writer);
}

void messages(const ChatHandler& chat, const HttpRequest& request, ResponseWriter& writer) {
  const auto parsed = parse_messages_request(request.body, chat.defaults());
  if (const auto* error = std::get_if<ApiError>(&parsed))
    return writer.send(refuse(*error, anthropic_error(*error)));
  AnthropicDialect dialect(chat.identity("msg_"));
  chat.handle(std::get<ChatRequest>(parsed), dialect, writer);
}

HttpResponse model_by_name(const std::vector<ModelCard>& cards, const std::string& name) {
  const auto found = std::ranges::find(cards, name, &ModelCard::name);
  if (found != cards.end()) return {.body = model_json(*found)};
  return error_response(
      {.status = 404,
       .message = "the model '" + name + "' does not exist; this server has '" + cards.front().name + "'",
       .param = "model",
       .code = "model_not_found"});
}

}  // namespace

std::vector<HttpRoute> make_routes(const Engine& engine, const ChatHandler& chat, const Metrics& metrics,
                                   ServedModel served, const std::atomic<bool>& draining) {
  const LoadedModel& model = engine.model();
  const Tokenizer& tokenizer = *model.tokenizer();
  std::vector<ModelCard> cards;
  for (const std::string& name : served.names) cards.push_back({name, served.created, model.max_seq()});
  const auto send = [](auto make) {
    return [make](const HttpRequest& request, ResponseWriter& writer) { writer.send(make(request)); };
  };
  const auto always = [&](HttpResponse response) {
    return send([response = std::move(response)](const HttpRequest&) { return response; });
  };
  const auto is_healthy = send([&engine, &draining, name = served.names.front()](const HttpRequest&) {
    return health(engine, name, draining);
  });
  std::vector<HttpRoute> routes = {
      {"GET", "/health", is_healthy},
      {"GET", "/health/ready", is_healthy},
      {"GET", "/health/live", always({.body = dump_json({{"status", "ok"}})})},
      {"GET", "/metrics", send([&](const HttpRequest&) {
         return HttpResponse{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                             .body = metrics.text(engine.stats())};
       })},
      {"GET", "/openapi.json", always({.body = std::string(openapi_json())})},
      {"GET", "/v1/models", always({.body = model_list_json(cards)})},
      {"GET", "/v1/models/*", send([cards](const HttpRequest& request) {
         return model_by_name(cards, request.path.substr(std::strlen("/v1/models/")));
       })},
      {"POST", "/v1/chat/completions",
       [&](const HttpRequest& request, ResponseWriter& writer) { chat_completions(chat, request, writer); }},
      {"POST", "/v1/completions",
       [&](const HttpRequest& request, ResponseWriter& writer) {
         completions(chat, tokenizer, request, writer);
       }},
      {"POST", "/v1/responses",
       [&](const HttpRequest& request, ResponseWriter& writer) { responses(chat, request, writer); }},
      {"POST", "/v1/messages",
       [&](const HttpRequest& request, ResponseWriter& writer) { messages(chat, request, writer); }},
      {"POST", "/v1/messages/count_tokens",
       send([&](const HttpRequest& request) { return count_tokens(chat, request); })},
      {"POST", "/tokenize",
       send([&](const HttpRequest& request) { return tokenize(chat, tokenizer, model.max_seq(), request); })},
      {"POST", "/detokenize",
       send([&](const HttpRequest& request) { return detokenize(tokenizer, request); })},
  };
  std::ranges::move(page_routes(), std::back_inserter(routes));
  return routes;
}

}  // namespace lily
