// The writing half of openai.h.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "server/json.h"
#include "server/openai.h"

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

Json logprobs_json(const std::vector<ChatLogprob>& logprobs) {
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

Json usage_json(const ChatUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

Json head(const ChatIdentity& identity, const char* object) {
  return {{"id", identity.id}, {"object", object}, {"created", identity.created}, {"model", identity.model}};
}

std::string chunk(const ChatIdentity& identity, Json choice) {
  Json out = head(identity, "chat.completion.chunk");
  out["choices"] = Json::array({std::move(choice)});
  return dump_json(out);
}

Json card_json(const ModelCard& card) {
  return {{"id", card.name},
          {"object", "model"},
          {"created", card.created},
          {"owned_by", "lily"},
          {"max_model_len", card.max_seq}};
}

}  // namespace

std::string chat_completion_json(const ChatIdentity& identity, const ChatPiece& answer,
                                 std::string_view finish_reason, const ChatUsage& usage, bool with_logprobs) {
  Json message = {{"role", "assistant"}, {"content", ""}};
  put_text(answer, message);
  Json choice = {{"index", 0}, {"message", std::move(message)}};
  if (with_logprobs) choice["logprobs"] = logprobs_json(answer.logprobs);
  choice["finish_reason"] = finish_reason;
  Json out = head(identity, "chat.completion");
  out["choices"] = Json::array({std::move(choice)});
  out["usage"] = usage_json(usage);
  return dump_json(out);
}

std::string chat_role_chunk(const ChatIdentity& identity) {
  return chunk(identity, {{"index", 0}, {"delta", {{"role", "assistant"}}}, {"finish_reason", nullptr}});
}

std::string chat_piece_chunk(const ChatIdentity& identity, const ChatPiece& piece) {
  Json delta = Json::object();
  put_text(piece, delta);
  Json choice = {{"index", 0}, {"delta", std::move(delta)}};
  if (!piece.logprobs.empty()) choice["logprobs"] = logprobs_json(piece.logprobs);
  choice["finish_reason"] = nullptr;
  return chunk(identity, std::move(choice));
}

std::string chat_finish_chunk(const ChatIdentity& identity, std::string_view finish_reason) {
  return chunk(identity, {{"index", 0}, {"delta", Json::object()}, {"finish_reason", finish_reason}});
}

std::string chat_usage_chunk(const ChatIdentity& identity, const ChatUsage& usage) {
  Json out = head(identity, "chat.completion.chunk");
  out["choices"] = Json::array();
  out["usage"] = usage_json(usage);
  return dump_json(out);
}

std::string model_json(const ModelCard& card) {
  return dump_json(card_json(card));
}

std::string model_list_json(const ModelCard& card) {
  return dump_json({{"object", "list"}, {"data", Json::array({card_json(card)})}});
}

}  // namespace lily
