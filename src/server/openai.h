// OpenAI's chat completions as data: a request parsed and validated, an answer and its stream chunks as JSON
// text. Which fields mean what is docs/api.md.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/sampler.h"
#include "server/errors.h"
#include "text/chat_template.h"
#include "text/output_parser.h"

namespace lily {

struct ChatRequest {
  /// As the template takes them: content joined to one string, tool-call arguments as objects, reasoning in
  /// reasoning_content, developer as system. Never null.
  std::shared_ptr<const nlohmann::ordered_json> messages;
  ChatTemplateOptions template_options;
  SamplingParams sampling;
  std::vector<std::string> stop;
  std::int64_t max_tokens = 0;  ///< 0: none given
  bool logprobs = false;
  int top_logprobs = 0;
  bool stream = false;
  bool include_usage = false;  ///< of a stream
};

/// What holds where a request says nothing, and what its ids are checked against.
struct ChatDefaults {
  SamplingParams sampling;  ///< the checkpoint's generation_config.json; the seed is drawn for each request
  TokenId vocab_end = 0;    ///< logit_bias takes ids below
};

/// Unknown fields are ignored; a known field of the wrong type or out of range is an error that names it.
std::variant<ChatRequest, ApiError> parse_chat_request(std::string_view body, const ChatDefaults& defaults);

/// What all parts of one answer share.
struct ChatIdentity {
  std::string id;  ///< "chatcmpl-..."
  std::int64_t created = 0;
  std::string model;
};

struct ChatUsage {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::int64_t reasoning_tokens = 0;
};

/// One generated token's log-probability; `bytes` may be a fragment of a UTF-8 sequence.
struct ChatLogprob {
  struct Alternative {
    std::string bytes;
    float logprob = 0;
  };
  std::string bytes;
  float logprob = 0;
  std::vector<Alternative> top;
};

/// A piece of an answer, or all of it.
struct ChatPiece {
  std::string reasoning;
  std::string content;
  std::vector<ChatLogprob> logprobs;
  [[nodiscard]] bool empty() const { return reasoning.empty() && content.empty() && logprobs.empty(); }
};

/// Fields an answer does not use are absent, never null.
[[nodiscard]] std::string chat_completion_json(const ChatIdentity& identity, const ChatPiece& answer,
                                               std::string_view finish_reason, const ChatUsage& usage,
                                               bool with_logprobs);

/// The chunks of a stream, in this order: role, pieces, finish, usage if it was asked for.
[[nodiscard]] std::string chat_role_chunk(const ChatIdentity& identity);
[[nodiscard]] std::string chat_piece_chunk(const ChatIdentity& identity, const ChatPiece& piece);
[[nodiscard]] std::string chat_finish_chunk(const ChatIdentity& identity, std::string_view finish_reason);
[[nodiscard]] std::string chat_usage_chunk(const ChatIdentity& identity, const ChatUsage& usage);

/// GET /v1/models and /v1/models/NAME.
struct ModelCard {
  std::string name;
  std::int64_t created = 0;
  std::int64_t max_seq = 0;
};
[[nodiscard]] std::string model_json(const ModelCard& card);
[[nodiscard]] std::string model_list_json(const ModelCard& card);

}  // namespace lily
