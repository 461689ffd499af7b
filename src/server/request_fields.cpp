#include "server/request_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "text/python_json.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxStopStrings = 16;
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

void limit_budget(std::int64_t tokens, ChatRequest& out) {
  out.thinking_budget = std::min(tokens, out.thinking_budget.value_or(tokens));
}

// Efforts in tokens of reasoning; from "high" on there is no limit but that of the answer.
struct Effort {
  std::string_view name;
  std::optional<std::int64_t> budget;
};
constexpr std::array<Effort, 7> kEfforts = {{{"none", 0},
                                             {"minimal", 512},
                                             {"low", 2048},
                                             {"medium", 8192},
                                             {"high", std::nullopt},
                                             {"xhigh", std::nullopt},
                                             {"max", std::nullopt}}};

void read_effort(FieldReader& fields, const char* name, ChatRequest& out) {
  std::string value;
  fields.string(name, value);
  if (value.empty()) return;
  const auto* effort = std::ranges::find(kEfforts, value, &Effort::name);
  if (effort == kEfforts.end()) {
    return fields.fail(name,
                       "expected none, minimal, low, medium, high, xhigh or max, found " + describe(value));
  }
  out.template_options.enable_thinking = value != "none";
  if (value != "none" && effort->budget) limit_budget(*effort->budget, out);
}

// -1 is no limit.
void read_budget(FieldReader& fields, std::initializer_list<const char*> names, ChatRequest& out) {
  for (const auto* name : names) {
    std::int64_t tokens = -1;
    fields.integer(name, {-1, INT64_MAX}, tokens);
    if (tokens >= 0) limit_budget(tokens, out);
  }
}

// Anthropic's and DeepSeek's object; a bare true or false occurs as well.
void read_thinking_object(FieldReader& fields, std::optional<ApiError>& error, ChatRequest& out) {
  const Json* thinking = fields.find("thinking");
  if (thinking == nullptr) return;
  if (thinking->is_boolean()) {
    out.template_options.enable_thinking = thinking->get<bool>();
    return;
  }
  FieldReader inner(*thinking, fields.path_of("thinking"), error);
  std::string type = "enabled";
  inner.string("type", type);
  if (type != "enabled" && type != "disabled" && type != "adaptive" && type != "between_tools" &&
      type != "auto") {
    inner.fail("type", "expected enabled, disabled or adaptive, found " + describe(type));
  }
  out.template_options.enable_thinking = type != "disabled";
  read_budget(inner, {"budget_tokens"}, out);
}

void read_reasoning_object(FieldReader& fields, std::optional<ApiError>& error, ChatRequest& out) {
  const Json* reasoning = fields.find("reasoning");
  if (reasoning == nullptr) return;
  FieldReader inner(*reasoning, fields.path_of("reasoning"), error);
  inner.boolean("enabled", out.template_options.enable_thinking);
  read_effort(inner, "effort", out);
  read_budget(inner, {"max_tokens"}, out);
}

// The template tests for exactly these values: "false", 0 and null do not switch thinking off.
void read_template_options(FieldReader& fields, ChatTemplateOptions& out) {
  const Json* options = fields.find("chat_template_kwargs");
  if (options == nullptr) return;
  if (!options->is_object()) {
    return fields.fail("chat_template_kwargs", "expected an object, found " + describe(*options));
  }
  if (options->contains("enable_thinking"))
    out.enable_thinking = (*options)["enable_thinking"] != Json(false);
  if (options->contains("preserve_thinking")) {
    out.preserve_thinking = (*options)["preserve_thinking"] == Json(true);
  }
}

}  // namespace

std::variant<Json, ApiError> parse_body(std::string_view body) {
  const auto invalid = [](const std::string& problem) {
    return ApiError{.message = "request body: " + problem, .code = "invalid_json"};
  };
  if (body.empty()) return invalid("expected a JSON object, found nothing");
  auto parsed = parse_template_json(body);
  if (!parsed.ok()) return invalid(parsed.error().message);
  return std::move(parsed).value();
}

void read_sampling(FieldReader& fields, const ChatDefaults& defaults, SamplingParams& out) {
  out = defaults.sampling;
  fields.number("temperature", {0, 2}, out.temperature);
  fields.number("top_p", {0, 1}, out.top_p);
  fields.integer("top_k", {-1, INT64_MAX}, out.top_k);
  fields.number("min_p", {0, 1}, out.min_p);
  fields.number("presence_penalty", {-2, 2}, out.presence_penalty);
  fields.number("frequency_penalty", {-2, 2}, out.frequency_penalty);
  fields.number("repetition_penalty", {0, kMaxPenalty}, out.repetition_penalty);
  if (!(out.repetition_penalty > 0)) fields.fail("repetition_penalty", "expected a number above 0, found 0");
  fields.integer("repetition_context_size", {1, INT64_MAX}, out.repetition_window);
  read_logit_bias(fields, defaults.vocab_end, out.logit_bias);
  auto seed = static_cast<std::int64_t>(fresh_seed());
  fields.integer("seed", {INT64_MIN, INT64_MAX}, seed);
  out.seed = static_cast<std::uint64_t>(seed);
}

void read_stop(FieldReader& fields, std::string_view name, std::vector<std::string>& out) {
  const Json* stop = fields.find(name);
  if (stop == nullptr) return;
  const Json list = stop->is_array() ? *stop : Json::array({*stop});
  if (list.size() > kMaxStopStrings) {
    return fields.fail(name,
                       fmt::format("expected at most {} strings, found {}", kMaxStopStrings, list.size()));
  }
  for (const Json& text : list) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty()) {
      return fields.fail(name, "expected a non-empty string or an array of them, found " + describe(text));
    }
    out.push_back(text.get<std::string>());
  }
}

void read_max_tokens(FieldReader& fields, std::initializer_list<const char*> names, std::int64_t& out) {
  std::int64_t limit = INT64_MAX;
  for (const auto* name : names) {
    std::int64_t given = INT64_MAX;
    fields.integer(name, {1, INT64_MAX}, given);
    limit = std::min(limit, given);
  }
  out = limit == INT64_MAX ? 0 : limit;
}

void read_timeout(FieldReader& fields, ChatRequest& out) {
  float seconds = 0;
  fields.number("timeout", {0.001, 604800}, seconds);
  out.timeout = std::chrono::milliseconds(std::lround(seconds * 1000));
}

// What is more exact counts more: the template's own switches last.
void read_thinking(FieldReader& fields, std::optional<ApiError>& error, ChatRequest& out) {
  read_effort(fields, "reasoning_effort", out);
  read_reasoning_object(fields, error, out);
  read_thinking_object(fields, error, out);
  read_budget(fields,
              {"thinking_budget", "thinking_token_budget", "thinking_budget_tokens", "max_thinking_tokens"},
              out);
  fields.boolean("enable_thinking", out.template_options.enable_thinking);
  fields.boolean("preserve_thinking", out.template_options.preserve_thinking);
  read_template_options(fields, out.template_options);
}

void read_format(FieldReader& format, std::optional<ApiError>& error, ChatRequest& out) {
  std::string type = "text";
  format.string("type", type);
  if (type == "text") return;
  if (type == "json_object") {
    out.schema = std::make_shared<const Json>(Json{{"type", "object"}});
    out.schema_field = format.path_of("type");
    return;
  }
  if (type != "json_schema") {
    return format.fail("type", "expected text, json_object or json_schema, found " + describe(type));
  }
  // OpenAI's chat nests the schema once more than its responses do.
  const Json* wrapper = format.find("json_schema");
  const bool nested = wrapper != nullptr && wrapper->is_object() && wrapper->contains("schema");
  const FieldReader inner(nested ? *wrapper : format.object(),
                          nested ? format.path_of("json_schema") : format.path(), error);
  const Json* schema = inner.find("schema");
  if (error) return;
  if (schema == nullptr) return format.fail("json_schema.schema", "expected a JSON schema, found nothing");
  out.schema = std::make_shared<const Json>(*schema);
  out.schema_field = inner.path_of("schema");
}

void read_output_config(FieldReader& fields, std::optional<ApiError>& error, ChatRequest& out) {
  const Json* config = fields.find("output_config");
  if (config == nullptr) return;
  FieldReader inner(*config, fields.path_of("output_config"), error);
  // Thinking is asked for elsewhere in this protocol; the effort only limits it.
  const bool thinks = out.template_options.enable_thinking;
  read_effort(inner, "effort", out);
  out.template_options.enable_thinking = thinks && out.template_options.enable_thinking;
  const Json* format = inner.find("format");
  if (format == nullptr) return;
  FieldReader what(*format, inner.path_of("format"), error);
  read_format(what, error, out);
}

void read_response_format(FieldReader& fields, std::optional<ApiError>& error, ChatRequest& out) {
  const Json* format = fields.find("response_format");
  if (format == nullptr) return;
  FieldReader inner(*format, fields.path_of("response_format"), error);
  read_format(inner, error, out);
}

}  // namespace lily
