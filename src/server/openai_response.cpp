// The writing half of openai.h.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "server/json.h"
#include "server/openai.h"
#include "server/sse.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

// Both names clients look for: reasoning_content (DeepSeek, llama.cpp, SGLang) and reasoning (vLLM, mlx-lm).
void put_text(const ChatPiece& piece, Json& out) {
  if (!piece.reasoning.empty()) {
    out["reasoning_content"] = piece.reasoning;
    out["reasoning"] = piece.reasoning;
  }
  if (!piece.content.empty()) out["content"] = piece.content;
}

Json token_json(const std::string& bytes, float logprob) {
  // Excluded tokens have minus infinity, which JSON cannot say; OpenAI's stand-in is -9999.
  const float value = std::isfinite(logprob) ? std::max(logprob, -9999.0F) : -9999.0F;
  Json byte_list = Json::array();
  for (const char byte : bytes) byte_list.push_back(static_cast<unsigned char>(byte));
  return {{"token", bytes}, {"logprob", value}, {"bytes", std::move(byte_list)}};
}

// The first part of a streamed call carries id, type and name, the others index and arguments alone.
Json calls_json(const std::vector<ChatToolCall>& calls, bool streamed) {
  Json list = Json::array();
  for (const ChatToolCall& call : calls) {
    Json out = Json::object();
    if (streamed) out["index"] = call.index;
    Json function = Json::object();
    if (!call.id.empty()) {
      out["id"] = call.id;
      out["type"] = "function";
      function["name"] = call.name;
    }
    function["arguments"] = call.arguments;
    out["function"] = std::move(function);
    list.push_back(std::move(out));
  }
  return list;
}

Json head(const ChatIdentity& identity, const char* object) {
  return {{"id", identity.id}, {"object", object}, {"created", identity.created}, {"model", identity.model}};
}

std::string chunk(const ChatIdentity& identity, Json choice) {
  Json out = head(identity, "chat.completion.chunk");
  out["choices"] = Json::array({std::move(choice)});
  return sse_event(dump_json(out));
}

Json card_json(const ModelCard& card) {
  return {{"id", card.name},
          {"object", "model"},
          {"created", card.created},
          {"owned_by", "lily"},
          {"max_model_len", card.max_seq}};
}

}  // namespace

std::string_view openai_finish_reason(const ChatEnd& end) {
  switch (end.reason) {
    case ChatEnd::Reason::kStop:
    case ChatEnd::Reason::kStopString:
      return "stop";
    case ChatEnd::Reason::kLength:
      return "length";
    case ChatEnd::Reason::kToolCalls:
      return "tool_calls";
  }
  return "stop";
}

Json openai_usage(const ChatUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

Json openai_logprobs(const std::vector<ChatLogprob>& logprobs) {
  Json content = Json::array();
  for (const ChatLogprob& entry : logprobs) {
    Json token = token_json(entry.bytes, entry.logprob);
    token["top_logprobs"] = Json::array();
    for (const auto& other : entry.top)
      token["top_logprobs"].push_back(token_json(other.bytes, other.logprob));
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}};
}

OpenAiDialect::OpenAiDialect(ChatIdentity identity, const OpenAiChat& request)
    : identity_(std::move(identity)),
      with_logprobs_(request.chat.logprobs),
      include_usage_(request.include_usage) {}

std::string OpenAiDialect::whole(const ChatPiece& answer, const ChatEnd& end) {
  Json message = {{"role", "assistant"}, {"content", answer.calls.empty() ? Json("") : Json(nullptr)}};
  put_text(answer, message);
  if (!answer.calls.empty()) message["tool_calls"] = calls_json(answer.calls, false);
  Json choice = {{"index", 0}, {"message", std::move(message)}};
  if (with_logprobs_) choice["logprobs"] = openai_logprobs(answer.logprobs);
  choice["finish_reason"] = openai_finish_reason(end);
  Json out = head(identity_, "chat.completion");
  out["choices"] = Json::array({std::move(choice)});
  out["usage"] = openai_usage(end.usage);
  return dump_json(out);
}

std::string OpenAiDialect::begin(const ChatUsage&) {
  return chunk(identity_, {{"index", 0}, {"delta", {{"role", "assistant"}}}, {"finish_reason", nullptr}});
}

std::string OpenAiDialect::piece(const ChatPiece& piece) {
  Json delta = Json::object();
  put_text(piece, delta);
  if (!piece.calls.empty()) delta["tool_calls"] = calls_json(piece.calls, true);
  Json choice = {{"index", 0}, {"delta", std::move(delta)}};
  if (!piece.logprobs.empty()) choice["logprobs"] = openai_logprobs(piece.logprobs);
  choice["finish_reason"] = nullptr;
  return chunk(identity_, std::move(choice));
}

std::string OpenAiDialect::end(const ChatEnd& end) {
  std::string out = chunk(
      identity_, {{"index", 0}, {"delta", Json::object()}, {"finish_reason", openai_finish_reason(end)}});
  if (include_usage_) {
    Json usage = head(identity_, "chat.completion.chunk");
    usage["choices"] = Json::array();
    usage["usage"] = openai_usage(end.usage);
    out += sse_event(dump_json(usage));
  }
  return out + sse_event("[DONE]");
}

std::string OpenAiDialect::break_off(const ApiError& error) {
  return sse_event(error_json(error));
}

std::string model_json(const ModelCard& card) {
  return dump_json(card_json(card));
}

std::string model_list_json(const std::vector<ModelCard>& cards) {
  Json list = Json::array();
  for (const ModelCard& card : cards) list.push_back(card_json(card));
  return dump_json({{"object", "list"}, {"data", std::move(list)}});
}

}  // namespace lily
