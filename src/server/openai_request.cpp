// The reading half of openai.h.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <random>

#include "server/chat_messages.h"
#include "server/field_reader.h"
#include "server/openai.h"
#include "text/python_json.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxStopStrings = 16;
constexpr std::int64_t kMaxTopLogprobs = 20;
constexpr float kMaxPenalty = 1e3F;

std::uint64_t fresh_seed() {
  std::random_device entropy;
  return (static_cast<std::uint64_t>(entropy()) << 32U) | entropy();
}

void read_logit_bias(FieldReader& fields, TokenId vocab_end, std::map<TokenId, float>& out) {
  const Json* bias = fields.find("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) return fields.fail("logit_bias", "expected an object, found " + describe(*bias));
  for (const auto& [key, value] : bias->items()) {
    TokenId id = -1;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
    if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size() || id < 0 || id >= vocab_end) {
      return fields.fail("logit_bias", fmt::format("expected token ids from 0 to {} as keys, found {}",
                                                   vocab_end - 1, describe(key)));
    }
    if (!value.is_number() || std::abs(value.get<double>()) > 100) {
      return fields.fail("logit_bias", fmt::format("expected a number from -100 to 100 for {}, found {}", key,
                                                   describe(value)));
    }
    out[id] = value.get<float>();
  }
}

void read_sampling(FieldReader& fields, TokenId vocab_end, SamplingParams& out) {
  fields.number("temperature", {0, 2}, out.temperature);
  fields.number("top_p", {0, 1}, out.top_p);
  fields.integer("top_k", {-1, INT64_MAX}, out.top_k);
  fields.number("min_p", {0, 1}, out.min_p);
  fields.number("presence_penalty", {-2, 2}, out.presence_penalty);
  fields.number("frequency_penalty", {-2, 2}, out.frequency_penalty);
  fields.number("repetition_penalty", {0, kMaxPenalty}, out.repetition_penalty);
  if (!(out.repetition_penalty > 0)) fields.fail("repetition_penalty", "expected a number above 0, found 0");
  fields.integer("repetition_context_size", {1, INT64_MAX}, out.repetition_window);
  read_logit_bias(fields, vocab_end, out.logit_bias);
  auto seed = static_cast<std::int64_t>(fresh_seed());
  fields.integer("seed", {INT64_MIN, INT64_MAX}, seed);
  out.seed = static_cast<std::uint64_t>(seed);
}

void read_stop(FieldReader& fields, std::vector<std::string>& out) {
  const Json* stop = fields.find("stop");
  if (stop == nullptr) return;
  const Json list = stop->is_array() ? *stop : Json::array({*stop});
  if (list.size() > kMaxStopStrings) {
    return fields.fail("stop",
                       fmt::format("expected at most {} strings, found {}", kMaxStopStrings, list.size()));
  }
  for (const Json& text : list) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty()) {
      return fields.fail("stop", "expected a non-empty string or an array of them, found " + describe(text));
    }
    out.push_back(text.get<std::string>());
  }
}

// The newer name and the older one; of two the smaller counts.
void read_max_tokens(FieldReader& fields, std::int64_t& out) {
  constexpr Range<std::int64_t> kRange{1, INT64_MAX};
  std::int64_t newer = INT64_MAX;
  std::int64_t older = INT64_MAX;
  fields.integer("max_completion_tokens", kRange, newer);
  fields.integer("max_tokens", kRange, older);
  const std::int64_t limit = std::min(newer, older);
  out = limit == INT64_MAX ? 0 : limit;
}

void read_logprobs(FieldReader& fields, ChatRequest& out) {
  fields.boolean("logprobs", out.logprobs);
  std::int64_t top = 0;
  fields.integer("top_logprobs", {0, kMaxTopLogprobs}, top);
  if (top > 0 && !out.logprobs) fields.fail("top_logprobs", "needs logprobs: true");
  out.top_logprobs = static_cast<int>(top);
}

void read_streaming(FieldReader& fields, ChatRequest& out, std::optional<ApiError>& error) {
  fields.boolean("stream", out.stream);
  if (const Json* options = fields.find("stream_options")) {
    FieldReader(*options, "stream_options", error).boolean("include_usage", out.include_usage);
  }
}

// The template tests for exactly these values: "false", 0 and null do not switch thinking off.
void read_template_options(FieldReader& fields, ChatTemplateOptions& out) {
  const Json* options = fields.find("chat_template_kwargs");
  if (options == nullptr) return;
  if (!options->is_object()) {
    return fields.fail("chat_template_kwargs", "expected an object, found " + describe(*options));
  }
  out.enable_thinking = options->value("enable_thinking", Json()) != Json(false);
  out.preserve_thinking = options->value("preserve_thinking", Json()) == Json(true);
}

// What this release does not do is refused by name rather than ignored.
void refuse_unsupported(FieldReader& fields, std::optional<ApiError>& error) {
  std::int64_t choices = 1;
  fields.integer("n", {1, INT64_MAX}, choices);
  if (choices != 1) fields.refuse("n", fmt::format("expected 1 (one answer a request), found {}", choices));
  for (const auto* name : {"tools", "functions"}) {
    const Json* list = fields.find(name);
    if (list == nullptr) continue;
    if (!list->is_array()) return fields.fail(name, "expected an array, found " + describe(*list));
    if (!list->empty()) return fields.refuse(name, "not supported yet");
  }
  for (const auto* name : {"tool_choice", "function_call"}) {
    const Json* choice = fields.find(name);
    if (choice != nullptr && *choice != "none" && *choice != "auto") {
      return fields.refuse(name,
                           "not supported yet, expected \"none\" or \"auto\", found " + describe(*choice));
    }
  }
  if (const Json* format = fields.find("response_format")) {
    std::string type;
    FieldReader(*format, "response_format", error).string("type", type);
    if (type != "text") {
      fields.refuse("response_format", "not supported yet, expected type \"text\", found " + describe(type));
    }
  }
}

ApiError invalid_json(const std::string& problem) {
  return {.message = "request body: " + problem, .code = "invalid_json"};
}

}  // namespace

std::variant<ChatRequest, ApiError> parse_chat_request(std::string_view body, const ChatDefaults& defaults) {
  if (body.empty()) return invalid_json("expected a JSON object, found nothing");
  auto parsed = parse_template_json(body);
  if (!parsed.ok()) return invalid_json(parsed.error().message);
  std::optional<ApiError> error;
  FieldReader fields(*parsed, "", error);
  ChatRequest request;
  request.sampling = defaults.sampling;
  std::string model;
  fields.string("model", model);  // any name: there is one model
  read_sampling(fields, defaults.vocab_end, request.sampling);
  read_max_tokens(fields, request.max_tokens);
  read_stop(fields, request.stop);
  read_logprobs(fields, request);
  read_streaming(fields, request, error);
  read_template_options(fields, request.template_options);
  refuse_unsupported(fields, error);
  if (error) return *std::move(error);
  const Json* messages = fields.find("messages");
  request.messages =
      std::make_shared<const Json>(normalize_messages(messages != nullptr ? *messages : Json(), error));
  if (error) return *std::move(error);
  return request;
}

}  // namespace lily
