#include "server/chat_messages.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "server/billing_line.h"
#include "server/field_reader.h"
#include "text/python_json.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

// The text of one typed part. An image or sound we cannot take must not vanish from the conversation.
std::string part_text(const Json& part, const std::string& path, std::optional<ApiError>& error) {
  FieldReader fields(part, path, error);
  std::string type;
  std::string text;
  fields.string("type", type);
  if (!error && type != "text") {
    fields.refuse("type",
                  fmt::format("expected \"text\" (this server takes text alone), found {}", describe(type)));
  }
  if (!error && fields.find("text") == nullptr) fields.fail("text", "expected a string, found nothing");
  fields.string("text", text);
  return text;
}

std::string content_text(const FieldReader& message, std::optional<ApiError>& error) {
  const Json* content = message.find("content");
  if (content == nullptr) return "";
  if (content->is_string()) return content->get<std::string>();
  const std::string path = message.path_of("content");
  if (!content->is_array()) {
    error = invalid_field(path, "expected a string or an array of parts, found " + describe(*content));
    return "";
  }
  std::string text;
  for (std::size_t i = 0; i < content->size() && !error; ++i) {
    text += part_text((*content)[i], fmt::format("{}[{}]", path, i), error);
  }
  return text;
}

Json normalize_call(const Json& call, const std::string& path, std::optional<ApiError>& error) {
  const FieldReader fields(call, path, error);
  const Json* function = fields.find("function");
  if (!error && function == nullptr)
    error = invalid_field(path + ".function", "expected an object, found nothing");
  if (error) return {};
  FieldReader inner(*function, path + ".function", error);
  std::string name;
  inner.string("name", name);
  if (!error && name.empty()) inner.fail("name", "expected the name of a function");
  Json arguments = normalize_arguments(inner, error);
  return {{"type", "function"}, {"function", {{"name", name}, {"arguments", std::move(arguments)}}}};
}

void normalize_calls(const FieldReader& message, Json& out, std::optional<ApiError>& error) {
  const Json* calls = message.find("tool_calls");
  if (calls == nullptr) return;
  const std::string path = message.path_of("tool_calls");
  if (!calls->is_array()) {
    error = invalid_field(path, "expected an array, found " + describe(*calls));
    return;
  }
  for (std::size_t i = 0; i < calls->size() && !error; ++i) {
    out["tool_calls"].push_back(normalize_call((*calls)[i], fmt::format("{}[{}]", path, i), error));
  }
}

Json normalize_message(const Json& message, const std::string& path, std::optional<ApiError>& error) {
  FieldReader fields(message, path, error);
  std::string role;
  fields.string("role", role);
  if (!error && role.empty()) fields.fail("role", "expected a role, found nothing");
  Json out = {{"role", role == "developer" ? "system" : role}, {"content", content_text(fields, error)}};
  if (out["role"] == "system") {
    out["content"] = std::string(without_billing_line(out["content"].get_ref<const std::string&>()));
  }
  if (role == "assistant") {
    const auto* field = fields.find("reasoning_content") != nullptr ? "reasoning_content" : "reasoning";
    std::string reasoning;
    fields.string(field, reasoning);
    if (fields.find(field) != nullptr) out["reasoning_content"] = reasoning;
    normalize_calls(fields, out, error);
  }
  return out;
}

}  // namespace

Json normalize_arguments(const FieldReader& function, std::optional<ApiError>& error) {
  const Json* arguments = function.find("arguments");
  if (arguments == nullptr) return Json::object();
  if (arguments->is_object()) return *arguments;
  if (!arguments->is_string()) {
    error = invalid_field(function.path_of("arguments"), "expected a string, found " + describe(*arguments));
    return {};
  }
  const auto& text = arguments->get_ref<const std::string&>();
  if (text.empty()) return Json::object();
  auto parsed = parse_template_json(text);
  if (parsed.ok() && parsed->is_object()) return std::move(parsed).value();
  if (parsed.ok() && parsed->is_null()) return Json::object();
  Json out = Json::object();
  out["arguments"] = text;
  return out;
}

Json normalize_messages(const Json& messages, std::optional<ApiError>& error) {
  Json out = Json::array();
  if (!messages.is_array() || messages.empty()) {
    error = invalid_field("messages", "expected a non-empty array, found " +
                                          (messages.is_array() ? "an empty one" : describe(messages)));
    return out;
  }
  for (std::size_t i = 0; i < messages.size() && !error; ++i) {
    out.push_back(normalize_message(messages[i], fmt::format("messages[{}]", i), error));
  }
  return out;
}

}  // namespace lily
