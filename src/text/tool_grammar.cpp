#include "text/tool_grammar.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/json_schema.h"
#include "text/tool_set.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;
using Fragment = Grammar::Fragment;
using RuleId = Grammar::RuleId;

constexpr std::string_view kCall = "<tool_call>";
constexpr std::string_view kEndValue = "</parameter>";

class ToolCompiler {
 public:
  ToolCompiler(const Json& tools, const ToolGrammarOptions& options, Grammar& grammar)
      : tools_(tools), options_(options), grammar_(grammar) {}

  Result<void> compile() {
    std::vector<Fragment> functions;
    for (std::size_t i = 0; i < tools_.size(); ++i) {
      const Json& function = tools_[i].at("function");
      if (!options_.only.empty() && function.at("name") != options_.only) continue;
      LILY_TRY(const Fragment part, this->function(function, fmt::format("tools[{}].function", i)));
      functions.push_back(part);
    }
    const RuleId call =
        grammar_.rule(grammar_.sequence({grammar_.literal(kCall), grammar_.literal("\n"),
                                         grammar_.choice(functions), grammar_.literal("\n</tool_call>")}));
    grammar_.set_root(grammar_.rule(options_.required ? calls(call) : text_with(call)));
    return {};
  }

 private:
  Fragment calls(RuleId call) {
    const RuleId newline = grammar_.rule(grammar_.literal("\n"));
    std::vector<Fragment> parts = {grammar_.repeat(newline, 0, 2), grammar_.call(call)};
    if (!options_.single) {
      const RuleId next = grammar_.rule(grammar_.sequence({grammar_.literal("\n"), grammar_.call(call)}));
      parts.push_back(grammar_.repeat(next, 0, Grammar::kUnbounded));
    }
    return grammar_.sequence(parts);
  }

  Fragment text_with(RuleId call) {
    const RuleId text = grammar_.rule(grammar_.without(kCall));
    const RuleId next = grammar_.rule(grammar_.sequence({grammar_.call(call), grammar_.call(text)}));
    return grammar_.sequence({grammar_.call(text), grammar_.repeat(next, 0, Grammar::kUnbounded)});
  }

  Result<Fragment> function(const Json& function, const std::string& path) {
    const std::string name = function.at("name").get<std::string>();
    const bool strict = std::ranges::find(options_.strict, name) != options_.strict.end();
    const Json none = Json::object();
    const Json& schema =
        function.contains("parameters") && function["parameters"].is_object() ? function["parameters"] : none;
    Fragment parameters{};
    if (strict || options_.required) {
      auto kept = typed_parameters(schema, path + ".parameters");
      if (!kept.ok() && strict) return std::move(kept).error();
      parameters = kept.ok() ? *kept : free_parameters(schema);
    } else {
      parameters = free_parameters(schema);
    }
    return grammar_.sequence(
        {grammar_.literal("<function=" + name + ">\n"), parameters, grammar_.literal("</function>")});
  }

  // Any of the parameters there are, or of any name if none are listed, with any text.
  Fragment free_parameters(const Json& schema) {
    const RuleId letter =
        grammar_.rule(grammar_.any_of({{'-', '.'}, {'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}));
    std::vector<Fragment> names;
    if (const auto properties = schema.find("properties");
        properties != schema.end() && properties->is_object()) {
      for (const auto& [key, property] : properties->items()) names.push_back(grammar_.literal(key));
    }
    const Fragment name = names.empty() ? grammar_.repeat(letter, 1, 64) : grammar_.choice(names);
    const RuleId one =
        grammar_.rule(grammar_.sequence({grammar_.literal("<parameter="), name, grammar_.literal(">\n"),
                                         grammar_.until(kEndValue), grammar_.literal("\n")}));
    return grammar_.repeat(one, 0, Grammar::kUnbounded);
  }

  Result<Fragment> typed_parameters(const Json& schema, const std::string& path) {
    JsonSchemaCompiler values(schema, grammar_);
    static const Json kNone = Json::object();
    const Json& properties = schema.contains("properties") ? schema["properties"] : kNone;
    const Json required = schema.value("required", Json::array());
    if (!properties.is_object()) {
      return fail(ErrorCode::kInvalidArgument, "{}.properties: expected an object", path);
    }
    if (schema.contains("$ref") || schema.contains("anyOf") || schema.contains("oneOf") ||
        schema.contains("allOf")) {
      return fail(ErrorCode::kInvalidArgument, "{}: only properties are supported at the top of parameters",
                  path);
    }
    std::vector<Fragment> parts;
    for (const auto& [name, property] : properties.items()) {
      const std::string place = fmt::format("{}.properties.{}", path, name);
      LILY_TRY(const Fragment value, this->value(property, schema, place, values));
      const Fragment one = grammar_.sequence({grammar_.literal("<parameter=" + name + ">\n"), value});
      const bool needed = required.is_array() && std::ranges::find(required, Json(name)) != required.end();
      parts.push_back(needed ? one : grammar_.optional(one));
    }
    return grammar_.sequence(parts);
  }

  // A value and its closing tag. What may be a string is written without quotes.
  Result<Fragment> value(const Json& property, const Json& root, const std::string& path,
                         JsonSchemaCompiler& values) {
    const Fragment end = grammar_.literal(fmt::format("\n{}\n", kEndValue));
    if (!json_types(property, root).string) {
      LILY_TRY(const RuleId rule, values.value(property, path));
      return grammar_.sequence({grammar_.call(rule), end});
    }
    LILY_TRY(const auto raw, values.raw_string(property, path));
    if (raw) return grammar_.sequence({*raw, end});
    return grammar_.sequence({grammar_.until(kEndValue), grammar_.literal("\n")});
  }

  const Json& tools_;
  const ToolGrammarOptions& options_;
  Grammar& grammar_;
};

}  // namespace

Result<Grammar> tool_grammar(const Json& tools, const ToolGrammarOptions& options) {
  Grammar grammar;
  LILY_TRY_VOID(ToolCompiler(tools, options, grammar).compile());
  return grammar;
}

}  // namespace lily
