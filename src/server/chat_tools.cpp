#include "server/chat_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLongestName = 256;

// Fields for us and not for the model.
void strip(Json& object) {
  object.erase("strict");
  object.erase("cache_control");
  object.erase("defer_loading");
}

// {"type": "function", "function": {...}}, or flat {"type": "function", "name": ...}.
ToolDefinition read_tool(const Json& tool, const std::string& path, std::optional<ApiError>& error) {
  FieldReader fields(tool, path, error);
  std::string type = "function";
  fields.string("type", type);
  if (type != "function") {
    fields.refuse("type", "expected \"function\", found " + describe(type));
    return {};
  }
  ToolDefinition out;
  fields.boolean("strict", out.strict);
  const Json* function = fields.find("function");
  if (!error && function == nullptr && fields.find("name") == nullptr) {
    fields.fail("function", "expected an object, found nothing");
  }
  if (error) return out;
  out.function = function != nullptr ? *function : tool;
  if (function == nullptr) out.function.erase("type");
  const std::string inside = function != nullptr ? path + ".function" : path;
  FieldReader inner(out.function, inside, error);
  inner.boolean("strict", out.strict);
  inner.string("name", out.name);
  check_tool(out, inside, error);
  return out;
}

std::vector<ToolDefinition> read_list(FieldReader& fields, const char* name, bool functions,
                                      std::optional<ApiError>& error) {
  std::vector<ToolDefinition> out;
  const Json* list = fields.find(name);
  if (list == nullptr) return out;
  if (!list->is_array()) {
    fields.fail(name, "expected an array, found " + describe(*list));
    return out;
  }
  for (std::size_t i = 0; i < list->size() && !error; ++i) {
    const Json& item = (*list)[i];
    const std::string path = fmt::format("{}[{}]", fields.path_of(name), i);
    out.push_back(read_tool(functions && item.is_object() ? Json{{"function", item}} : item, path, error));
  }
  return out;
}

// "none", "auto", "required", or an object that names a function.
void read_choice(FieldReader& fields, const char* name, std::optional<ApiError>& error, ToolChoice& out) {
  const Json* choice = fields.find(name);
  if (choice == nullptr) return;
  if (choice->is_string()) {
    const auto& word = choice->get_ref<const std::string&>();
    if (word == "auto") return;
    if (word == "none") {
      out.kind = ToolChoice::Kind::kNone;
    } else if (word == "required" || word == "any") {
      out.kind = ToolChoice::Kind::kRequired;
    } else {
      fields.fail(name, "expected none, auto, required or a function, found " + describe(*choice));
    }
    return;
  }
  FieldReader inner(*choice, fields.path_of(name), error);
  std::string type = "function";
  inner.string("type", type);
  if (type != "function") return inner.refuse("type", "expected \"function\", found " + describe(type));
  out.kind = ToolChoice::Kind::kNamed;
  if (const Json* function = inner.find("function")) {
    FieldReader(*function, inner.path_of("function"), error).string("name", out.name);
  } else {
    inner.string("name", out.name);
  }
  if (!error && out.name.empty()) inner.fail("name", "expected the name of a function, found nothing");
}

}  // namespace

void check_tool(const ToolDefinition& tool, const std::string& path, std::optional<ApiError>& error) {
  const std::string& name = tool.name;
  if (error) return;
  // What the markup of a call is made of cannot be in a name.
  const bool bad = std::ranges::any_of(
      name, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == '<' || c == '>'; });
  if (name.empty() || name.size() > kLongestName || bad) {
    error = invalid_field(path + ".name",
                          fmt::format("expected 1 to {} bytes without line breaks, '<' and '>', found {}",
                                      kLongestName, describe(Json(name))));
    return;
  }
  const auto parameters = tool.function.find("parameters");
  if (parameters == tool.function.end() || parameters->is_null() || parameters->is_object()) return;
  error = invalid_field(path + ".parameters", "expected a JSON schema, found " + describe(*parameters));
}

void set_tools(std::vector<ToolDefinition> tools, const std::string& choice_field,
               std::optional<ApiError>& error, ChatTools& out) {
  if (error) return;
  const auto refuse = [&](const std::string& problem) { error = invalid_field(choice_field, problem); };
  const bool must_call =
      out.choice.kind == ToolChoice::Kind::kRequired || out.choice.kind == ToolChoice::Kind::kNamed;
  if (must_call && tools.empty()) return refuse("needs tools to choose from, found none");
  if (out.choice.kind == ToolChoice::Kind::kNamed &&
      std::ranges::find(tools, out.choice.name, &ToolDefinition::name) == tools.end()) {
    return refuse("expected one of the tools, found " + describe(Json(out.choice.name)));
  }
  if (tools.empty() || out.choice.kind == ToolChoice::Kind::kNone) return;
  Json definitions = Json::array();
  for (ToolDefinition& tool : tools) {
    if (tool.strict) out.strict.push_back(tool.name);
    strip(tool.function);
    definitions.push_back({{"type", "function"}, {"function", std::move(tool.function)}});
  }
  out.set = std::make_shared<const ToolSet>(read_tool_set(definitions));
  out.definitions = std::make_shared<const Json>(std::move(definitions));
}

void read_tools(FieldReader& fields, std::optional<ApiError>& error, ChatTools& out) {
  auto tools = read_list(fields, "tools", false, error);
  auto functions = read_list(fields, "functions", true, error);
  std::ranges::move(functions, std::back_inserter(tools));
  fields.boolean("parallel_tool_calls", out.parallel);
  const auto* choice = fields.find("tool_choice") != nullptr ? "tool_choice" : "function_call";
  if (const Json* value = fields.find(choice);
      value != nullptr && std::string_view(choice) == "function_call" && value->is_object()) {
    out.choice.kind = ToolChoice::Kind::kNamed;
    FieldReader(*value, fields.path_of(choice), error).string("name", out.choice.name);
  } else {
    read_choice(fields, choice, error, out.choice);
  }
  set_tools(std::move(tools), fields.path_of(choice), error, out);
}

}  // namespace lily
