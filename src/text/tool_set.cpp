#include "text/tool_set.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "text/json_pointer.h"
#include "text/python_json.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxReferences = 32;  // a chain of references longer than this says nothing

// Integers beyond 64 bits are binary values of parse_template_json.
bool is_number(const Json& value) {
  return value.is_number() || value.is_binary();
}

bool is_integer(const Json& value) {
  return value.is_number_integer() || value.is_binary();
}

void add_named(std::string_view name, JsonTypes& out) {
  out.string |= name == "string";
  out.null |= name == "null";
  out.boolean |= name == "boolean";
  out.integer |= name == "integer";
  out.number |= name == "number";
  out.object |= name == "object";
  out.array |= name == "array";
}

void add_value(const Json& value, JsonTypes& out) {
  out.string |= value.is_string();
  out.null |= value.is_null();
  out.boolean |= value.is_boolean();
  out.integer |= is_integer(value);
  out.number |= value.is_number_float();
  out.object |= value.is_object();
  out.array |= value.is_array();
}

void collect(const Json& schema, const Json& root, int depth, JsonTypes& out) {
  if (!schema.is_object() || depth > kMaxReferences) return;
  if (const auto ref = schema.find("$ref"); ref != schema.end() && ref->is_string()) {
    if (const Json* target = resolve_local_reference(root, ref->get_ref<const std::string&>())) {
      collect(*target, root, depth + 1, out);
    }
  }
  if (const auto type = schema.find("type"); type != schema.end()) {
    for (const Json& name : type->is_array() ? *type : Json::array({*type})) {
      if (name.is_string()) add_named(name.get_ref<const std::string&>(), out);
    }
  } else if (const auto values = schema.find("enum"); values != schema.end() && values->is_array()) {
    for (const Json& value : *values) add_value(value, out);
  } else if (const auto value = schema.find("const"); value != schema.end()) {
    add_value(*value, out);
  }
  if (schema.value("nullable", Json()) == Json(true)) out.null = true;
  for (const auto* branches : {"anyOf", "oneOf", "allOf"}) {
    const auto found = schema.find(branches);
    if (found == schema.end() || !found->is_array()) continue;
    for (const Json& branch : *found) collect(branch, root, depth + 1, out);
  }
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

bool equal_in_any_case(std::string_view text, std::string_view lower) {
  return std::ranges::equal(text, lower,
                            [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + ('a' - 'A') : a) == b; });
}

// 3.0 is the integer 3; beyond 2^53 a double no longer says which integer was meant.
std::string integer_text(const Json& value, std::string_view text) {
  if (is_integer(value)) return std::string(text);
  const double number = value.is_number_float() ? value.get<double>() : std::nan("");
  if (std::trunc(number) != number || std::abs(number) > 0x1p53) return "";
  return std::to_string(static_cast<std::int64_t>(number));
}

// The JSON text where it is one of the types; else empty.
std::string typed_json(std::string_view text, const JsonTypes& types) {
  if (types.boolean && equal_in_any_case(text, "true")) return "true";
  if (types.boolean && equal_in_any_case(text, "false")) return "false";
  if (types.null && equal_in_any_case(text, "null")) return "null";
  if (!types.integer && !types.number && !types.object && !types.array) return "";
  const auto parsed = parse_template_json(text);
  if (!parsed.ok()) return "";
  if (is_number(*parsed)) {
    if (types.number) return std::string(text);
    return types.integer ? integer_text(*parsed, text) : "";
  }
  const bool fits = (types.object && parsed->is_object()) || (types.array && parsed->is_array());
  return fits ? std::string(text) : "";
}

}  // namespace

JsonTypes json_types(const Json& schema, const Json& root) {
  JsonTypes types;
  collect(schema, root, 0, types);
  const bool none = !types.string && !types.null && !types.boolean && !types.integer && !types.number &&
                    !types.object && !types.array;
  if (none) types.string = true;
  return types;
}

ToolSet read_tool_set(const Json& tools) {
  ToolSet set;
  for (const Json& tool : tools) {
    const Json& function = tool.at("function");
    ToolSet::Parameters parameters;
    const Json schema = function.value("parameters", Json::object());
    const Json properties = schema.is_object() ? schema.value("properties", Json::object()) : Json::object();
    if (properties.is_object()) {
      for (const auto& [name, property] : properties.items()) parameters[name] = json_types(property, schema);
    }
    set.add(function.at("name").get<std::string>(), std::move(parameters));
  }
  return set;
}

std::string argument_json(std::string_view text, const JsonTypes& types) {
  if (std::string typed = typed_json(trim(text), types); !typed.empty()) return typed;
  return '"' + json_escaped(text) + '"';
}

std::string json_escaped(std::string_view text) {
  const std::string quoted = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace lily
