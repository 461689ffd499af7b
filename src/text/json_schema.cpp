#include "text/json_schema.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "text/json_containers.h"
#include "text/json_numbers.h"
#include "text/regex_grammar.h"
#include "text/schema_merge.h"
#include "text/schema_reader.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;
using Fragment = Grammar::Fragment;
using RuleId = Grammar::RuleId;
using schema::at;
using schema::find;
using schema::problem;

constexpr std::size_t kMostStates = 1'000'000;  // of a whole grammar

// Whether a schema without a type is about one all the same.
bool speaks_of(const Json& schema, std::initializer_list<const char*> keywords) {
  return std::ranges::any_of(keywords, [&](const char* keyword) { return schema.contains(keyword); });
}

}  // namespace

struct JsonSchemaCompiler::Impl {
  Impl(const Json& root, Grammar& target) : grammar(target), containers(target), merger(root) {}

  Grammar& grammar;
  JsonContainers containers;
  SchemaMerger merger;
  std::map<const Json*, RuleId> rules;  // of schemas met, for references that come back to them
  int depth = 0;

  Result<RuleId> value(const Json& schema, const std::string& path) {
    if (const auto known = rules.find(&schema); known != rules.end()) return known->second;
    if (++depth > schema::kDeepest) return problem(path, "nested deeper than {} levels", schema::kDeepest);
    if (grammar.size() > kMostStates) return problem(path, "the schema is too large");
    const RuleId rule = grammar.declare();
    rules[&schema] = rule;
    LILY_TRY(const Fragment body, any_form(schema, path));
    grammar.define(rule, body);
    --depth;
    return rule;
  }

  Result<Fragment> call_value(const Json& schema, const std::string& path) {
    LILY_TRY(const RuleId rule, value(schema, path));
    return grammar.call(rule);
  }

  // References and combinations first, then types.
  Result<Fragment> any_form(const Json& schema, const std::string& path) {
    if (schema.is_boolean()) {
      if (schema.get<bool>()) return grammar.call(containers.any_value());
      return problem(path, "false allows no value");
    }
    if (!schema.is_object()) return problem(path, "expected a schema, found {}", schema.type_name());
    LILY_TRY_VOID(schema::check_keywords(schema, path));
    if (const Json* ref = find(schema, "$ref")) return reference(schema, *ref, path);
    if (const Json* all = find(schema, "allOf")) return all_of(schema, *all, path);
    for (const auto* keyword : {"anyOf", "oneOf"}) {
      if (const Json* branches = find(schema, keyword)) return any_of(schema, keyword, *branches, path);
    }
    if (const Json* value = find(schema, "const")) return grammar.literal(schema::spelled(*value));
    if (const Json* values = find(schema, "enum")) return enumeration(*values, at(path, "enum"));
    return typed(schema, path);
  }

  Result<Fragment> reference(const Json& schema, const Json& ref, const std::string& path) {
    LILY_TRY(const Json* target, merger.resolve(ref, path));
    Json others = schema::without(schema, "$ref");
    if (others.empty()) return call_value(*target, at(path, "$ref"));
    LILY_TRY(Json both, merger.merge(std::move(others), *target, path));
    LILY_TRY(const Json* kept, merger.keep(std::move(both), path));
    return call_value(*kept, path);
  }

  Result<Fragment> all_of(const Json& schema, const Json& parts, const std::string& path) {
    const std::string where = at(path, "allOf");
    if (!parts.is_array() || parts.empty()) return problem(where, "expected a non-empty array of schemas");
    Json whole = schema::without(schema, "allOf");
    for (const Json& part : parts) {
      LILY_TRY(whole, merger.merge(std::move(whole), part, where));
    }
    LILY_TRY(const Json* kept, merger.keep(std::move(whole), path));
    return call_value(*kept, path);
  }

  Result<Fragment> any_of(const Json& schema, const char* keyword, const Json& branches,
                          const std::string& path) {
    const std::string where = at(path, keyword);
    if (!branches.is_array() || branches.empty())
      return problem(where, "expected a non-empty array of schemas");
    const Json others = schema::without(schema, keyword);
    std::vector<Fragment> parts;
    for (std::size_t i = 0; i < branches.size(); ++i) {
      const Json* branch = &branches[i];
      const std::string place = fmt::format("{}[{}]", where, i);
      if (!others.empty()) {
        LILY_TRY(Json both, merger.merge(others, *branch, place));
        LILY_TRY(branch, merger.keep(std::move(both), place));
      }
      LILY_TRY(const Fragment part, call_value(*branch, place));
      parts.push_back(part);
    }
    return grammar.choice(parts);
  }

  Result<Fragment> enumeration(const Json& values, const std::string& path) {
    if (!values.is_array() || values.empty()) return problem(path, "expected a non-empty array");
    std::vector<Fragment> parts;
    for (const Json& value : values) parts.push_back(grammar.literal(schema::spelled(value)));
    return grammar.choice(parts);
  }

  Result<Fragment> typed(const Json& schema, const std::string& path) {
    if (const Json* type = find(schema, "type")) {
      const std::string where = at(path, "type");
      if (type->is_string()) return of_type(schema, type->get<std::string>(), path);
      if (!type->is_array() || type->empty())
        return problem(where, "expected the name of a type, found {}", schema::spelled(*type));
      std::vector<Fragment> parts;
      for (const Json& name : *type) {
        if (!name.is_string())
          return problem(where, "expected the names of types, found {}", schema::spelled(name));
        LILY_TRY(const Fragment part, of_type(schema, name.get<std::string>(), path));
        parts.push_back(part);
      }
      return grammar.choice(parts);
    }
    if (speaks_of(schema, {"properties", "required", "additionalProperties"})) return object(schema, path);
    if (speaks_of(schema, {"items", "prefixItems", "minItems", "maxItems"})) return array(schema, path);
    if (speaks_of(schema, {"pattern", "minLength", "maxLength", "format"})) return text(schema, path);
    if (speaks_of(schema, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})) {
      return number(schema, path, false);
    }
    return grammar.call(containers.any_value());
  }

  Result<Fragment> of_type(const Json& schema, const std::string& type, const std::string& path) {
    if (type == "string") return text(schema, path);
    if (type == "integer") return number(schema, path, true);
    if (type == "number") return number(schema, path, false);
    if (type == "boolean") return grammar.choice({grammar.literal("true"), grammar.literal("false")});
    if (type == "null") return grammar.literal("null");
    if (type == "object") return object(schema, path);
    if (type == "array") return array(schema, path);
    return problem(at(path, "type"), "expected a JSON type, found {}", schema::spelled(type));
  }

  Result<Fragment> text(const Json& schema, const std::string& path) {
    LILY_TRY(const auto inside, text_body(schema, path, StringSpelling::kJson));
    JsonStrings& strings = containers.strings();
    return inside ? strings.quoted(*inside) : grammar.call(strings.any());
  }

  // What limits a string, without quotes; nullopt if nothing does.
  Result<std::optional<Fragment>> text_body(const Json& schema, const std::string& path,
                                            StringSpelling spelling) {
    LILY_TRY(const schema::CountRange length,
             schema::read_count_range(schema, "minLength", "maxLength", path));
    std::string pattern;
    std::string keyword = "pattern";
    if (const Json* given = find(schema, "pattern")) {
      if (!given->is_string())
        return problem(at(path, "pattern"), "expected a string, found {}", schema::spelled(*given));
      pattern = given->get<std::string>();
    } else if (const Json* format = find(schema, "format");
               format != nullptr && format->is_string() && !length.limited()) {
      pattern = format_pattern(format->get_ref<const std::string&>());
      keyword = "format";
    }
    if (!pattern.empty()) {
      if (length.limited())
        return problem(at(path, keyword), "not supported together with minLength or maxLength");
      auto inside = compile_regex(pattern, spelling, grammar);
      if (!inside.ok()) return problem(at(path, keyword), "{}", inside.error().message);
      return std::optional(*inside);
    }
    if (!length.limited()) return std::optional<Fragment>();
    return std::optional(containers.strings().counted(spelling, length.least, length.most));
  }

  Result<Fragment> number(const Json& schema, const std::string& path, bool integer) {
    LILY_TRY(const NumberBounds bounds, schema::read_number_bounds(schema, integer, path));
    return integer ? integer_grammar(bounds, grammar) : number_grammar(bounds, grammar);
  }

  Result<Fragment> array(const Json& schema, const std::string& path) {
    LILY_TRY(const schema::CountRange count, schema::read_count_range(schema, "minItems", "maxItems", path));
    const Json* items = find(schema, "items");
    const Json* prefix = find(schema, "prefixItems");
    if (items != nullptr && items->is_array()) prefix = std::exchange(items, find(schema, "additionalItems"));
    if (prefix != nullptr) return tuple(schema, *prefix, items, path);
    if (items == nullptr) return containers.array(containers.any_value(), count.least, count.most);
    if (*items == Json(false)) {
      if (count.least > 0) return problem(at(path, "minItems"), "items: false allows none");
      return containers.tuple({});
    }
    LILY_TRY(const RuleId item, value(*items, at(path, "items")));
    return containers.array(item, count.least, count.most);
  }

  // All of the first items, and none behind them.
  Result<Fragment> tuple(const Json& schema, const Json& prefix, const Json* items, const std::string& path) {
    const std::string where = at(path, "prefixItems");
    if (!prefix.is_array() || prefix.empty()) return problem(where, "expected a non-empty array of schemas");
    if (items != nullptr && *items != Json(false)) {
      return problem(at(path, "items"), "behind prefixItems only false is supported");
    }
    for (const auto* keyword : {"minItems", "maxItems"}) {
      const Json* given = find(schema, keyword);
      if (given != nullptr && *given != Json(prefix.size()))
        return problem(at(path, keyword), "beside prefixItems expected their number");
    }
    std::vector<RuleId> parts;
    for (std::size_t i = 0; i < prefix.size(); ++i) {
      LILY_TRY(const RuleId item, value(prefix[i], fmt::format("{}[{}]", where, i)));
      parts.push_back(item);
    }
    return containers.tuple(parts);
  }

  Result<Fragment> object(const Json& schema, const std::string& path) {
    LILY_TRY(const auto members, read_members(schema, path));
    std::optional<RuleId> extra;
    const Json* more = find(schema, "additionalProperties");
    if (more == nullptr && members.empty()) return grammar.call(containers.any_object());
    if (more != nullptr && *more != Json(false)) {
      LILY_TRY(const RuleId value, this->value(*more, at(path, "additionalProperties")));
      extra = containers.member_of_any_name(value);
    }
    return containers.object(members, extra);
  }

  // The properties, and behind them what is required without being one.
  Result<std::vector<JsonContainers::Member>> read_members(const Json& schema, const std::string& path) {
    const Json* properties = find(schema, "properties");
    const Json* required = find(schema, "required");
    if (properties != nullptr && !properties->is_object()) {
      return problem(at(path, "properties"), "expected an object, found {}", properties->type_name());
    }
    std::vector<std::string> needed;
    if (required != nullptr && required->is_array()) {
      for (const Json& name : *required) {
        if (!name.is_string())
          return problem(at(path, "required"), "expected names, found {}", schema::spelled(name));
        needed.push_back(name.get<std::string>());
      }
    }
    std::vector<JsonContainers::Member> members;
    const auto add = [&](const std::string& name, RuleId value) {
      const bool is_needed = std::ranges::find(needed, name) != needed.end();
      members.push_back({containers.member(name, value), is_needed});
      std::erase(needed, name);
    };
    if (properties != nullptr) {
      for (const auto& [name, property] : properties->items()) {
        LILY_TRY(const RuleId rule, value(property, at(at(path, "properties"), name)));
        add(name, rule);
      }
    }
    while (!needed.empty()) add(std::string(needed.front()), containers.any_value());
    return members;
  }
};

JsonSchemaCompiler::JsonSchemaCompiler(const Json& root, Grammar& grammar)
    : impl_(std::make_unique<Impl>(root, grammar)) {}
JsonSchemaCompiler::~JsonSchemaCompiler() = default;

Result<RuleId> JsonSchemaCompiler::value(const Json& schema, const std::string& path) {
  LILY_TRY(const RuleId rule, impl_->value(schema, path));
  if (impl_->grammar.has_left_recursion())
    return problem(path, "a part refers to itself without any text between");
  return rule;
}

Result<std::optional<Fragment>> JsonSchemaCompiler::raw_string(const Json& schema, const std::string& path) {
  if (!schema.is_object() || schema.value("type", Json("string")) != Json("string"))
    return std::optional<Fragment>();
  const auto is_string = [](const Json& value) { return value.is_string(); };
  Json values = schema.value("enum", Json::array());
  if (schema.contains("const")) values = Json::array({schema["const"]});
  if (values.is_array() && !values.empty() && std::ranges::all_of(values, is_string)) {
    std::vector<Fragment> parts;
    for (const Json& value : values)
      parts.push_back(impl_->grammar.literal(value.get_ref<const std::string&>()));
    return std::optional(impl_->grammar.choice(parts));
  }
  return impl_->text_body(schema, path, StringSpelling::kRaw);
}

Result<Grammar> json_schema_grammar(const Json& schema) {
  Grammar grammar;
  JsonSchemaCompiler compiler(schema, grammar);
  LILY_TRY(const RuleId value, compiler.value(schema, ""));
  const RuleId newline = grammar.rule(grammar.literal("\n"));
  grammar.set_root(grammar.rule(grammar.sequence({grammar.repeat(newline, 0, 2), grammar.call(value)})));
  return grammar;
}

}  // namespace lily
