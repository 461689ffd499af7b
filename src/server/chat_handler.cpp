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

ChatHandler::ChatHandler(Engine& engine, ChatDefaults defaults)
    : engine_(engine), defaults_(std::move(defaults)) {}

void ChatHandler::handle(const HttpRequest& request, ResponseWriter& writer) const {
  const auto parsed = parse_chat_request(request.body, defaults_);
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    HttpResponse response = error_response(*error);
    // A body that is no JSON may have been cut by a wrong length: what follows is not to be read as a
    // request.
    response.close = error->code == "invalid_json";
    return writer.send(response);
  }
  const auto& chat = std::get<ChatRequest>(parsed);
  auto submitted = submit(chat);
  if (const auto* error = std::get_if<ApiError>(&submitted)) return writer.send(error_response(*error));
  auto& accepted = std::get<Accepted>(submitted);
  ChatSession session(*engine_.model().tokenizer(), std::move(accepted.generation), accepted.prompt, chat);
  if (chat.stream) {
    answer_stream(session, chat, writer);
  } else {
    answer_whole(session, chat, writer);
  }
}

std::variant<ChatHandler::Accepted, ApiError> ChatHandler::submit(const ChatRequest& request) const {
  const LoadedModel& model = engine_.model();
  const auto text = model.chat_template()->render(*request.messages, nlohmann::ordered_json::array(),
                                                  request.template_options);
  if (!text.ok()) {
    ApiError error = to_api_error(text.error());
    error.param = "messages";
    return error;
  }
  Accepted accepted;
  accepted.prompt = model.tokenizer()->encode(*text);
  auto generation = engine_.submit({.prompt = accepted.prompt,
                                    .sampling = request.sampling,
                                    .max_tokens = request.max_tokens,
                                    .logprobs = request.logprobs,
                                    .top_logprobs = request.top_logprobs});
  if (!generation.ok()) {
    ApiError error = to_api_error(generation.error());
    if (std::ssize(accepted.prompt) > model.max_seq()) {
      error.param = "messages";
      error.code = "context_length_exceeded";
    }
    return error;
  }
  accepted.generation = std::move(generation).value();
  return accepted;
}

// JSON may begin with spaces, so a space is the ping.
void ChatHandler::answer_whole(ChatSession& session, const ChatRequest& request,
                               ResponseWriter& writer) const {
  const HttpResponse head;
  ClientWatch watch(writer, head);
  ChatPiece answer;
  while (!session.finished()) {
    if (auto piece = session.next(kLook)) {
      answer.reasoning += piece->reasoning;
      answer.content += piece->content;
      std::ranges::move(piece->logprobs, std::back_inserter(answer.logprobs));
    }
    if (!watch.alive(" ")) return;
  }
  HttpResponse response;
  if (const auto error = session.error()) {
    response = error_response(*error);
  } else {
    response.body =
        chat_completion_json(identity(), answer, session.finish_reason(), session.usage(), request.logprobs);
  }
  if (!writer.begun()) return writer.send(response);
  if (watch.write(response.body)) writer.end();
}

void ChatHandler::answer_stream(ChatSession& session, const ChatRequest& request,
                                ResponseWriter& writer) const {
  const ChatIdentity id = identity();
  const HttpResponse head{.content_type = "text/event-stream",
                          .body = sse_event(chat_role_chunk(id)),
                          .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}};
  writer.begin(head);
  ClientWatch watch(writer, head);
  const auto prompt_tokens = session.usage().prompt_tokens;
  while (!session.finished()) {
    const auto piece = session.next(kLook);
    if (piece && !piece->empty() && !watch.write(sse_event(chat_piece_chunk(id, *piece)))) return;
    if (!watch.alive(sse_comment(fmt::format("keepalive {}/{}", session.prefilled(), prompt_tokens)))) return;
  }
  std::string tail;
  if (const auto error = session.error()) {
    tail = sse_event(error_json(*error));
  } else {
    tail = sse_event(chat_finish_chunk(id, session.finish_reason()));
    if (request.include_usage) tail += sse_event(chat_usage_chunk(id, session.usage()));
    tail += sse_event("[DONE]");
  }
  if (watch.write(tail)) writer.end();
}

ChatIdentity ChatHandler::identity() const {
  return {random_id("chatcmpl-"), static_cast<std::int64_t>(std::time(nullptr)), engine_.model().name()};
}

}  // namespace lily
