#include "server/server.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "server/chat_handler.h"
#include "server/errors.h"
#include "server/json.h"
#include "server/metrics.h"
#include "server/openai.h"

namespace lily {
namespace {

// How long answers that the engine has finished may take to reach their clients.
constexpr std::chrono::milliseconds kLastBytes{5'000};

// A signal handler may do little more than write to a pipe.
std::array<int, 2> signal_pipe{-1, -1};

void on_signal(int signal) {
  const char byte = static_cast<char>(signal);
  const auto written = ::write(signal_pipe[1], &byte, 1);
  static_cast<void>(written);
}

// SIGTERM and SIGINT become a byte in the pipe, once each: the second one has its usual effect.
Result<void> catch_signals() {
  if (::pipe(signal_pipe.data()) != 0) return fail(ErrorCode::kIo, "pipe: {}", std::strerror(errno));
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGTERM, SIGINT}) {
    if (::sigaction(signal, &action, nullptr) != 0)
      return fail(ErrorCode::kIo, "sigaction: {}", std::strerror(errno));
  }
  return {};
}

void wait_for_signal() {
  char byte = 0;
  while (::read(signal_pipe[0], &byte, 1) < 0 && errno == EINTR) {
  }
}

Result<void> check_model(const LoadedModel& model) {
  if (model.tokenizer() == nullptr) {
    return fail(ErrorCode::kUnsupported, "{}: cannot serve chat without a tokenizer.json", model.name());
  }
  if (!model.chat_template().ok()) return Error(model.chat_template().error()).in(model.name());
  return {};
}

HttpResponse health(const Engine& engine, bool draining) {
  const Engine::Stats stats = engine.stats();
  HttpResponse response{.status = draining ? 503 : 200};
  response.body = dump_json({{"status", draining ? "draining" : "ok"},
                             {"model", engine.model().name()},
                             {"running", stats.running},
                             {"queued", stats.queued}});
  return response;
}

// A body that is no JSON may have been cut by a wrong length: what follows is not to be read as a request.
HttpResponse refuse(const ApiError& error) {
  HttpResponse response = error_response(error);
  response.close = error.code == "invalid_json";
  return response;
}

void chat_completions(const ChatHandler& chat, const HttpRequest& request, ResponseWriter& writer) {
  const auto parsed = parse_chat_request(request.body, chat.defaults());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return writer.send(refuse(*error));
  const auto& openai = std::get<OpenAiChat>(parsed);
  OpenAiDialect dialect(chat.identity("chatcmpl-"), openai);
  chat.handle(openai.chat, dialect, writer);
}

HttpResponse model_by_name(const ModelCard& card, const std::string& name) {
  if (name == card.name) return {.body = model_json(card)};
  return error_response(
      {.status = 404,
       .message = "the model '" + name + "' does not exist; this server has '" + card.name + "'",
       .param = "model",
       .code = "model_not_found"});
}

std::vector<HttpRoute> make_routes(const Engine& engine, const ChatHandler& chat, const Metrics& metrics,
                                   const std::atomic<bool>& draining) {
  const ModelCard card{engine.model().name(), static_cast<std::int64_t>(std::time(nullptr)),
                       engine.model().max_seq()};
  const auto always = [](HttpResponse response) {
    return [response = std::move(response)](const HttpRequest&, ResponseWriter& writer) {
      writer.send(response);
    };
  };
  return {
      {"GET", "/", always({.content_type = "text/plain; charset=utf-8", .body = "lily is running\n"})},
      {"GET", "/metrics",
       [&](const HttpRequest&, ResponseWriter& writer) {
         writer.send({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                      .body = metrics.text(engine.stats())});
       }},
      {"GET", "/health/live", always({.body = dump_json({{"status", "ok"}})})},
      {"GET", "/health/ready",
       [&](const HttpRequest&, ResponseWriter& writer) { writer.send(health(engine, draining)); }},
      {"GET", "/health",
       [&](const HttpRequest&, ResponseWriter& writer) { writer.send(health(engine, draining)); }},
      {"GET", "/v1/models", always({.body = model_list_json(card)})},
      {"GET", "/v1/models/*",
       [card](const HttpRequest& request, ResponseWriter& writer) {
         writer.send(model_by_name(card, request.path.substr(std::strlen("/v1/models/"))));
       }},
      {"POST", "/v1/chat/completions",
       [&](const HttpRequest& request, ResponseWriter& writer) { chat_completions(chat, request, writer); }},
  };
}

}  // namespace

Result<void> run_server(Engine& engine, const ServerOptions& options) {
  LILY_TRY_VOID(check_model(engine.model()));
  const ChatHandler chat(engine);
  Metrics metrics;
  std::atomic<bool> draining = false;
  LILY_TRY_VOID(catch_signals());
  LILY_TRY(const auto http,
           HttpServer::start(options.address, make_routes(engine, chat, metrics, draining), options.limits));
  engine.observe([&](FinishReason reason, const GenerationUsage& usage) { metrics.record(reason, usage); });
  if (options.on_ready) options.on_ready({options.address.host, http->port()});

  wait_for_signal();
  log::info("shutting down: answers under way have {} ms", options.drain.count());
  draining = true;
  http->drain();
  engine.drain(options.drain);
  http->stop(kLastBytes);
  engine.observe({});
  return {};
}

}  // namespace lily
