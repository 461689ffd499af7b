#include "server/chat_handler.h"

#include <fmt/format.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "server/client_watch.h"
#include "server/sse.h"

namespace lily {
namespace {

// How long a wait for the next token goes on without a look at the client.
constexpr std::chrono::milliseconds kLook{50};

}  // namespace

void ChatHandler::handle(const ChatRequest& request, ChatDialect& dialect, ResponseWriter& writer) const {
  auto submitted = submit(request);
  if (const auto* error = std::get_if<ApiError>(&submitted)) return writer.send(dialect.error(*error));
  auto& accepted = std::get<Accepted>(submitted);
  ChatSession session(*engine_.model().tokenizer(), std::move(accepted.generation), accepted.prompt, request);
  if (request.stream) {
    answer_stream(session, dialect, writer);
  } else {
    answer_whole(session, dialect, writer);
  }
}

std::variant<std::vector<TokenId>, ApiError> ChatHandler::prompt(const ChatRequest& request) const {
  if (request.prompt) return *request.prompt;
  static const nlohmann::ordered_json kNoTools = nlohmann::ordered_json::array();
  const LoadedModel& model = engine_.model();
  const auto* tools = request.tools.definitions.get();
  const auto text = model.chat_template()->render(*request.messages, tools != nullptr ? *tools : kNoTools,
                                                  request.template_options);
  if (text.ok()) return model.tokenizer()->encode(*text);
  ApiError error = to_api_error(text.error());
  error.param = "messages";
  return error;
}

std::variant<ChatHandler::Accepted, ApiError> ChatHandler::submit(const ChatRequest& request) const {
  auto ids = prompt(request);
  if (auto* error = std::get_if<ApiError>(&ids)) return std::move(*error);
  Accepted accepted{std::get<std::vector<TokenId>>(std::move(ids)), nullptr};
  auto guide = constraints_.guide(request, accepted.prompt);
  if (auto* error = std::get_if<ApiError>(&guide)) return std::move(*error);
  auto generation = engine_.submit({.prompt = accepted.prompt,
                                    .sampling = request.sampling,
                                    .max_tokens = request.max_tokens,
                                    .ignore_eos = request.ignore_eos,
                                    .logprobs = request.logprobs,
                                    .top_logprobs = request.top_logprobs,
                                    .guide = std::get<std::shared_ptr<TokenGuide>>(std::move(guide)),
                                    .timeout = request.timeout});
  if (!generation.ok()) {
    ApiError error = to_api_error(generation.error());
    if (std::ssize(accepted.prompt) > engine_.model().max_seq()) {
      error.param = request.prompt ? "prompt" : "messages";
      error.code = "context_length_exceeded";
    }
    return error;
  }
  accepted.generation = std::move(generation).value();
  return accepted;
}

// JSON may begin with spaces, so a space is the ping.
void ChatHandler::answer_whole(ChatSession& session, ChatDialect& dialect, ResponseWriter& writer) const {
  const HttpResponse head;
  ClientWatch watch(writer, head);
  ChatPiece answer;
  while (!session.finished()) {
    if (auto piece = session.next(kLook)) answer.append(std::move(*piece));
    if (!watch.alive(" ")) return;
  }
  HttpResponse response;
  if (const auto error = session.error()) {
    response = dialect.error(*error);
  } else {
    response.body = dialect.whole(answer, session.end());
  }
  if (!writer.begun()) return writer.send(response);
  if (watch.write(response.body)) writer.end();
}

void ChatHandler::answer_stream(ChatSession& session, ChatDialect& dialect, ResponseWriter& writer) const {
  const ChatUsage prompt{.prompt_tokens = session.prompt_tokens()};
  const HttpResponse head{.content_type = "text/event-stream",
                          .body = dialect.begin(prompt),
                          .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}};
  writer.begin(head);
  ClientWatch watch(writer, head);
  while (!session.finished()) {
    const auto piece = session.next(kLook);
    if (const std::string text = piece && !piece->empty() ? dialect.piece(*piece) : ""; !text.empty()) {
      if (!watch.write(text)) return;
    }
    const auto ping =
        sse_comment(fmt::format("keepalive {}/{}", session.prefilled(), session.prompt_tokens()));
    if (!watch.alive(ping)) return;
  }
  const auto error = session.error();
  if (watch.write(error ? dialect.break_off(*error) : dialect.end(session.end()))) writer.end();
}

ChatIdentity ChatHandler::identity(std::string_view prefix) const {
  return {random_id(prefix), static_cast<std::int64_t>(std::time(nullptr)), model_name_};
}

ChatDefaults ChatHandler::defaults() const {
  return {engine_.model().sampling_defaults(), engine_.model().vocab_end()};
}

}  // namespace lily
