// The fields that several protocols share, read into a ChatRequest.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>
#include <variant>

#include "server/chat_request.h"
#include "server/field_reader.h"

namespace lily {

/// The JSON of a request's body; an error of code "invalid_json" where it is none.
std::variant<nlohmann::ordered_json, ApiError> parse_body(std::string_view body);

/// temperature, top_p, top_k, min_p, the penalties, logit_bias and seed, over the checkpoint's defaults.
void read_sampling(FieldReader& fields, const ChatDefaults& defaults, SamplingParams& out);

/// A string or up to 16 under `name`.
void read_stop(FieldReader& fields, std::string_view name, std::vector<std::string>& out);

/// Limits of the answer under any of `names`: the smallest counts.
void read_max_tokens(FieldReader& fields, std::initializer_list<const char*> names, std::int64_t& out);

/// `timeout`: seconds that the request may take.
void read_timeout(FieldReader& fields, ChatRequest& out);

/// Everything that switches, limits or keeps the reasoning: chat_template_kwargs, enable_thinking,
/// preserve_thinking, thinking, reasoning_effort, reasoning, and the names of the budget.
void read_thinking(FieldReader& fields, std::optional<ApiError>& error, ChatRequest& out);

/// What `response_format` (or the responses API's `text.format`) holds.
void read_format(FieldReader& format, std::optional<ApiError>& error, ChatRequest& out);

/// Anthropic's `output_config`: an effort, and a format.
void read_output_config(FieldReader& fields, std::optional<ApiError>& error, ChatRequest& out);

/// `response_format`.
void read_response_format(FieldReader& fields, std::optional<ApiError>& error, ChatRequest& out);

}  // namespace lily
