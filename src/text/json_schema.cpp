#include "text/json_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "text/json_numbers.h"
#include "text/json_pointer.h"
#include "text/regex_grammar.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;
using Fragment = Grammar::Fragment;
using RuleId = Grammar::RuleId;

constexpr std::uint32_t kMostCounted = 65'536;  // maxLength, maxItems and the like
constexpr std::size_t kMostStates = 1'000'000;  // of a whole grammar
constexpr int kDeepest = 128;                   // schemas within schemas, references followed
constexpr std::uint32_t kIndentation = 40;      // blanks behind a line break

// Keywords whose meaning cannot be kept.
constexpr std::array<std::string_view, 22> kUnsupported = {"not",
                                                           "if",
                                                           "then",
                                                           "else",
                                                           "patternProperties",
                                                           "propertyNames",
                                                           "dependencies",
                                                           "dependentRequired",
                                                           "dependentSchemas",
                                                           "unevaluatedProperties",
                                                           "unevaluatedItems",
                                                           "contains",
                                                           "minContains",
                                                           "maxContains",
                                                           "uniqueItems",
                                                           "minProperties",
                                                           "maxProperties",
                                                           "multipleOf",
                                                           "$dynamicRef",
                                                           "$recursiveRef",
                                                           "contentMediaType",
                                                           "contentSchema"};

// Keywords that say nothing about which values there are.
constexpr std::array<std::string_view, 15> kAnnotations = {
    "title",    "description", "default",  "examples",      "deprecated",
    "readOnly", "writeOnly",   "$comment", "$schema",       "$id",
    "$defs",    "definitions", "$anchor",  "discriminator", "example"};

struct Format {
  std::string_view name;
  std::string_view pattern;
};
constexpr std::string_view kTime =
    R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))";
constexpr std::string_view kDate = R"(\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01]))";
const std::array<Format, 8> kFormats = {
    {{"date", kDate},
     {"time", kTime},
     {"date-time", ""},  // put together below
     {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
     {"email", R"([A-Za-z0-9_%+-]+(\.[A-Za-z0-9_%+-]+)*@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+)"},
     {"ipv4", R"(((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))"},
     {"hostname",
      R"([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*)"},
     {"duration", R"(P(\d+W|\d+Y(\d+M)?(\d+D)?|\d+M(\d+D)?|\d+D|(\d+[YMD])*T(\d+H)?(\d+M)?\d+S))"}}};

std::string format_pattern(std::string_view name) {
  if (name == "date-time") return fmt::format("^{}T{}$", kDate, kTime);
  const auto found = std::ranges::find(kFormats, name, &Format::name);
  return found == kFormats.end() ? "" : fmt::format("^{}$", found->pattern);
}

std::string at(const std::string& path, std::string_view step) {
  return path.empty() ? std::string(step) : fmt::format("{}.{}", path, step);
}

template <class... Args>
Error problem(const std::string& path, fmt::format_string<Args...> format, Args&&... args) {
  const std::string place = path.empty() ? "schema" : path;
  return fail(ErrorCode::kInvalidArgument, "{}: {}", place, fmt::format(format, std::forward<Args>(args)...));
}

const Json* find(const Json& schema, std::string_view keyword) {
  const auto found = schema.find(keyword);
  return found == schema.end() ? nullptr : &*found;
}

bool is_annotation(std::string_view keyword) {
  return std::ranges::find(kAnnotations, keyword) != kAnnotations.end();
}

// Whether a schema without a type is about one all the same.
bool speaks_of(const Json& schema, std::initializer_list<const char*> keywords) {
  return std::ranges::any_of(keywords, [&](const char* keyword) { return schema.contains(keyword); });
}

}  // namespace

struct JsonSchemaCompiler::Impl {
  Impl(const Json& root_schema, Grammar& target) : root(root_schema), grammar(target) {
    blanks = grammar.rule(blank_fragment());
    string = grammar.rule(quoted(grammar.repeat(character_rule(), 0, Grammar::kUnbounded)));
  }

  const Json& root;
  Grammar& grammar;
  RuleId blanks = 0;
  RuleId string = 0;
  std::optional<RuleId> any_value;
  std::optional<RuleId> any_object;
  std::map<const Json*, RuleId> rules;  // of schemas met, for references that come back to them
  std::map<std::string, Json> merged;   // schemas put together here, by their text; they keep their addresses
  int depth = 0;

  Fragment blank_fragment() {
    const RuleId indent = grammar.rule(grammar.any_of({{' ', ' '}, {'\t', '\t'}}));
    return grammar.choice(
        {grammar.nothing(), grammar.literal(" "),
         grammar.sequence({grammar.literal("\n"), grammar.repeat(indent, 0, kIndentation)})});
  }

  // Escapes are all JSON has, surrogates in pairs.
  Fragment escape() {
    const auto hex = grammar.rule(grammar.any_of({{'0', '9'}, {'a', 'f'}, {'A', 'F'}}));
    const auto d = [&] { return grammar.any_of({{'d', 'd'}, {'D', 'D'}}); };
    const Fragment plain =
        grammar.sequence({grammar.any_of({{'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}}),
                          grammar.repeat(hex, 3, 3)});
    const Fragment low = grammar.sequence({d(), grammar.bytes('0', '7'), grammar.repeat(hex, 2, 2)});
    const Fragment pair = grammar.sequence(
        {d(), grammar.any_of({{'8', '9'}, {'a', 'b'}, {'A', 'B'}}), grammar.repeat(hex, 2, 2),
         grammar.literal("\\u"), d(), grammar.any_of({{'c', 'f'}, {'C', 'F'}}), grammar.repeat(hex, 2, 2)});
    const Fragment unicode = grammar.sequence({grammar.literal("u"), grammar.choice({plain, low, pair})});
    std::vector<std::pair<std::uint8_t, std::uint8_t>> letters;
    for (const char c : std::string_view("\"\\/bfnrt")) {
      letters.emplace_back(static_cast<std::uint8_t>(c), static_cast<std::uint8_t>(c));
    }
    return grammar.sequence({grammar.literal("\\"), grammar.choice({grammar.any_of(letters), unicode})});
  }

  // One byte of a string or one escape. Whether bytes form characters is left to the model.
  RuleId character_rule() {
    return grammar.rule(
        grammar.choice({grammar.any_of({{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0xFF}}), escape()}));
  }

  // One character, to be counted: a first byte and its continuation.
  RuleId counted_rule(StringSpelling spelling) {
    const RuleId more = grammar.rule(grammar.bytes(0x80, 0xBF));
    const Fragment wide = grammar.sequence({grammar.bytes(0xC2, 0xF4), grammar.repeat(more, 1, 3)});
    if (spelling == StringSpelling::kRaw) return grammar.rule(grammar.choice({grammar.bytes(0, 0x7F), wide}));
    return grammar.rule(grammar.choice(
        {grammar.any_of({{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0x7F}}), wide, escape()}));
  }

  Fragment quoted(Fragment inside) {
    return grammar.sequence({grammar.literal("\""), inside, grammar.literal("\"")});
  }

  Fragment blank() { return grammar.call(blanks); }

  Result<RuleId> value(const Json& schema, const std::string& path) {
    if (const auto known = rules.find(&schema); known != rules.end()) return known->second;
    if (++depth > kDeepest) return problem(path, "nested deeper than {} levels", kDeepest);
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
      if (schema.get<bool>()) return grammar.call(any());
      return problem(path, "false allows no value");
    }
    if (!schema.is_object()) return problem(path, "expected a schema, found {}", schema.type_name());
    for (const auto& [keyword, meaning] : schema.items()) {
      const bool off = meaning.is_null() || meaning == Json(false);
      if (!off && std::ranges::find(kUnsupported, keyword) != kUnsupported.end()) {
        return problem(at(path, keyword), "not supported in constrained output");
      }
    }
    if (const Json* ref = find(schema, "$ref")) return reference(schema, *ref, path);
    if (const Json* all = find(schema, "allOf")) return all_of(schema, *all, path);
    for (const auto* keyword : {"anyOf", "oneOf"}) {
      if (const Json* branches = find(schema, keyword)) return any_of(schema, keyword, *branches, path);
    }
    if (const Json* value = find(schema, "const")) return grammar.literal(value->dump());
    if (const Json* values = find(schema, "enum")) return enumeration(*values, at(path, "enum"));
    return typed(schema, path);
  }

  Result<const Json*> resolve(const Json& ref, const std::string& path) {
    const Json* target =
        ref.is_string() ? resolve_local_reference(root, ref.get_ref<const std::string&>()) : nullptr;
    if (target == nullptr) {
      return problem(at(path, "$ref"), "expected a reference into this schema, found {}", ref.dump());
    }
    return target;
  }

  Result<Fragment> reference(const Json& schema, const Json& ref, const std::string& path) {
    LILY_TRY(const Json* target, resolve(ref, path));
    Json others = without(schema, "$ref");
    if (others.empty()) return call_value(*target, at(path, "$ref"));
    LILY_TRY(Json both, merge(std::move(others), *target, path));
    return call_value(keep(std::move(both)), path);
  }

  // Equal ones are one, so that a recursion through them comes back to where it was.
  const Json& keep(Json schema) {
    std::string text = schema.dump(-1, ' ', false, Json::error_handler_t::replace);
    return merged.try_emplace(std::move(text), std::move(schema)).first->second;
  }

  // What a schema says beside `keyword`.
  static Json without(const Json& schema, std::string_view keyword) {
    Json out = Json::object();
    for (const auto& [key, value] : schema.items()) {
      if (key != keyword && !is_annotation(key)) out[key] = value;
    }
    return out;
  }

  Result<Fragment> all_of(const Json& schema, const Json& parts, const std::string& path) {
    const std::string where = at(path, "allOf");
    if (!parts.is_array() || parts.empty()) return problem(where, "expected a non-empty array of schemas");
    Json whole = without(schema, "allOf");
    for (const Json& part : parts) {
      LILY_TRY(whole, merge(std::move(whole), part, where));
    }
    return call_value(keep(std::move(whole)), path);
  }

  Result<Fragment> any_of(const Json& schema, const char* keyword, const Json& branches,
                          const std::string& path) {
    const std::string where = at(path, keyword);
    if (!branches.is_array() || branches.empty())
      return problem(where, "expected a non-empty array of schemas");
    const Json others = without(schema, keyword);
    std::vector<Fragment> parts;
    for (std::size_t i = 0; i < branches.size(); ++i) {
      const Json* branch = &branches[i];
      const std::string place = fmt::format("{}[{}]", where, i);
      if (!others.empty()) {
        LILY_TRY(Json both, merge(others, *branch, place));
        branch = &keep(std::move(both));
      }
      LILY_TRY(const Fragment part, call_value(*branch, place));
      parts.push_back(part);
    }
    return grammar.choice(parts);
  }

  // Both schemas at once.
  Result<Json> merge(Json into, const Json& from, const std::string& path) {
    if (++depth > kDeepest) return problem(path, "nested deeper than {} levels", kDeepest);
    const Json* part = &from;
    Json joined;
    if (from.is_object() && from.contains("$ref")) {
      LILY_TRY(const Json* target, resolve(from["$ref"], path));
      LILY_TRY(joined, merge(without(from, "$ref"), *target, path));
      part = &joined;
    }
    if (part->is_boolean() && part->get<bool>()) part = &(joined = Json::object());
    if (!part->is_object()) return problem(path, "expected schemas that can hold at once");
    for (const auto& [key, value] : part->items()) {
      if (is_annotation(key)) continue;
      LILY_TRY_VOID(merge_keyword(key, value, path, into));
    }
    --depth;
    return into;
  }

  Result<void> merge_keyword(const std::string& key, const Json& value, const std::string& path, Json& into) {
    if (!into.contains(key)) {
      into[key] = value;
      return {};
    }
    Json& present = into[key];
    if (present == value) return {};
    if (key == "properties" && present.is_object() && value.is_object()) {
      for (const auto& [name, property] : value.items()) {
        if (present.contains(name) && present[name] != property) {
          present[name] = Json{{"allOf", Json::array({present[name], property})}};
        } else {
          present[name] = property;
        }
      }
      return {};
    }
    if (key == "required" && present.is_array() && value.is_array()) {
      present.insert(present.end(), value.begin(), value.end());
      return {};
    }
    if (key == "allOf" && present.is_array() && value.is_array()) {
      present.insert(present.end(), value.begin(), value.end());
      return {};
    }
    return problem(at(path, key), "two schemas that hold at once both say it, differently: not supported");
  }

  Result<Fragment> enumeration(const Json& values, const std::string& path) {
    if (!values.is_array() || values.empty()) return problem(path, "expected a non-empty array");
    std::vector<Fragment> parts;
    for (const Json& value : values) parts.push_back(grammar.literal(value.dump()));
    return grammar.choice(parts);
  }

  Result<Fragment> typed(const Json& schema, const std::string& path) {
    if (const Json* type = find(schema, "type")) {
      const std::string where = at(path, "type");
      if (type->is_string()) return of_type(schema, type->get<std::string>(), path);
      if (!type->is_array() || type->empty())
        return problem(where, "expected the name of a type, found {}", type->dump());
      std::vector<Fragment> parts;
      for (const Json& name : *type) {
        if (!name.is_string()) return problem(where, "expected the names of types, found {}", name.dump());
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
    return grammar.call(any());
  }

  Result<Fragment> of_type(const Json& schema, const std::string& type, const std::string& path) {
    if (type == "string") return text(schema, path);
    if (type == "integer") return number(schema, path, true);
    if (type == "number") return number(schema, path, false);
    if (type == "boolean") return grammar.choice({grammar.literal("true"), grammar.literal("false")});
    if (type == "null") return grammar.literal("null");
    if (type == "object") return object(schema, path);
    if (type == "array") return array(schema, path);
    return problem(at(path, "type"), "expected a JSON type, found {}", Json(type).dump());
  }

  Result<std::uint32_t> count(const Json& schema, const char* keyword, std::uint32_t otherwise,
                              const std::string& path) {
    const Json* value = find(schema, keyword);
    if (value == nullptr) return otherwise;
    const double number = value->is_number() ? value->get<double>() : -1;
    if (!(number >= 0 && number <= kMostCounted) || std::trunc(number) != number) {
      return problem(at(path, keyword), "expected an integer from 0 to {}, found {}", kMostCounted,
                     value->dump());
    }
    return static_cast<std::uint32_t>(number);
  }

  Result<Fragment> text(const Json& schema, const std::string& path) {
    LILY_TRY(const auto inside, text_body(schema, path, StringSpelling::kJson));
    return inside ? quoted(*inside) : grammar.call(string);
  }

  // What limits a string, without quotes; nullopt if nothing does.
  Result<std::optional<Fragment>> text_body(const Json& schema, const std::string& path,
                                            StringSpelling spelling) {
    LILY_TRY(const std::uint32_t least, count(schema, "minLength", 0, path));
    LILY_TRY(const std::uint32_t most, count(schema, "maxLength", Grammar::kUnbounded, path));
    if (least > most) return problem(at(path, "minLength"), "is above maxLength");
    const bool counted = least > 0 || most != Grammar::kUnbounded;
    std::string pattern;
    std::string keyword = "pattern";
    if (const Json* given = find(schema, "pattern")) {
      if (!given->is_string())
        return problem(at(path, "pattern"), "expected a string, found {}", given->dump());
      pattern = given->get<std::string>();
    } else if (const Json* format = find(schema, "format");
               format != nullptr && format->is_string() && !counted) {
      pattern = format_pattern(format->get_ref<const std::string&>());
      keyword = "format";
    }
    if (!pattern.empty()) {
      if (counted) return problem(at(path, keyword), "not supported together with minLength or maxLength");
      auto inside = compile_regex(pattern, spelling, grammar);
      if (!inside.ok()) return problem(at(path, keyword), "{}", inside.error().message);
      return std::optional(*inside);
    }
    if (!counted) return std::optional<Fragment>();
    return std::optional(grammar.repeat(counted_rule(spelling), least, most));
  }

  // A bound; fractions only where rounding them inwards loses nothing.
  Result<std::optional<std::int64_t>> bound(const Json& schema, const char* keyword, bool integer, bool upper,
                                            const std::string& path) {
    const Json* value = find(schema, keyword);
    if (value == nullptr || value->is_boolean()) return std::optional<std::int64_t>();
    double number = value->is_number() ? value->get<double>() : std::nan("");
    if (integer && std::isfinite(number)) number = upper ? std::floor(number) : std::ceil(number);
    if (!(std::abs(number) <= static_cast<double>(kMaxBound)) || std::trunc(number) != number) {
      return problem(at(path, keyword), "expected a whole number of at most 18 digits, found {}",
                     value->dump());
    }
    if (value->is_number_integer()) return std::optional(value->get<std::int64_t>());
    return std::optional(static_cast<std::int64_t>(number));
  }

  Result<Fragment> number(const Json& schema, const std::string& path, bool integer) {
    NumberBounds bounds;
    LILY_TRY(bounds.least, bound(schema, "minimum", integer, false, path));
    LILY_TRY(bounds.most, bound(schema, "maximum", integer, true, path));
    LILY_TRY(const auto above, bound(schema, "exclusiveMinimum", integer, false, path));
    LILY_TRY(const auto below, bound(schema, "exclusiveMaximum", integer, true, path));
    if (above && (!bounds.least || *above >= *bounds.least)) {
      bounds.least = above;
      bounds.least_exclusive = true;
    }
    if (below && (!bounds.most || *below <= *bounds.most)) {
      bounds.most = below;
      bounds.most_exclusive = true;
    }
    const bool exclusive = bounds.least_exclusive || bounds.most_exclusive;
    const std::int64_t room = bounds.least && bounds.most ? *bounds.most - *bounds.least : 2;
    if (room < 0 || (room == 0 && exclusive) ||
        (room == 1 && integer && bounds.least_exclusive && bounds.most_exclusive)) {
      return problem(path, "no number is within the bounds");
    }
    return integer ? integer_grammar(bounds, grammar) : number_grammar(bounds, grammar);
  }

  // `first` and what follows it, with commas: between `least` and `most` in all, from `open` to `close`.
  Fragment list(RuleId item, std::uint32_t least, std::uint32_t most) {
    if (most == 0) return grammar.nothing();
    const RuleId next = grammar.rule(grammar.sequence({grammar.literal(","), blank(), grammar.call(item)}));
    const std::uint32_t more = most == Grammar::kUnbounded ? most : most - 1;
    const Fragment some = grammar.sequence(
        {blank(), grammar.call(item), grammar.repeat(next, least > 0 ? least - 1 : 0, more), blank()});
    return least > 0 ? some : grammar.choice({blank(), some});
  }

  Result<Fragment> array(const Json& schema, const std::string& path) {
    LILY_TRY(const std::uint32_t least, count(schema, "minItems", 0, path));
    LILY_TRY(const std::uint32_t most, count(schema, "maxItems", Grammar::kUnbounded, path));
    if (least > most) return problem(at(path, "minItems"), "is above maxItems");
    const Json* items = find(schema, "items");
    const Json* prefix = find(schema, "prefixItems");
    if (items != nullptr && items->is_array()) prefix = std::exchange(items, find(schema, "additionalItems"));
    Fragment inside{};
    if (prefix != nullptr) {
      LILY_TRY(inside, tuple(schema, *prefix, items, path));
    } else {
      RuleId item = 0;
      if (items == nullptr) {
        item = any();
      } else if (*items == Json(false)) {
        if (least > 0) return problem(at(path, "minItems"), "items: false allows none");
        return grammar.sequence({grammar.literal("["), blank(), grammar.literal("]")});
      } else {
        LILY_TRY(item, value(*items, at(path, "items")));
      }
      inside = list(item, least, most);
    }
    return grammar.sequence({grammar.literal("["), inside, grammar.literal("]")});
  }

  // All of the first items, and none behind them.
  Result<Fragment> tuple(const Json& schema, const Json& prefix, const Json* items, const std::string& path) {
    const std::string where = at(path, "prefixItems");
    if (!prefix.is_array() || prefix.empty()) return problem(where, "expected a non-empty array of schemas");
    if (items != nullptr && *items != Json(false)) {
      return problem(at(path, "items"), "behind prefixItems only false is supported");
    }
    if (schema.contains("minItems") || schema.contains("maxItems")) {
      for (const auto* keyword : {"minItems", "maxItems"}) {
        LILY_TRY(const std::uint32_t given,
                 count(schema, keyword, static_cast<std::uint32_t>(prefix.size()), path));
        if (given != prefix.size())
          return problem(at(path, keyword), "beside prefixItems expected their number");
      }
    }
    std::vector<Fragment> parts = {blank()};
    for (std::size_t i = 0; i < prefix.size(); ++i) {
      if (i > 0) {
        parts.push_back(grammar.literal(","));
        parts.push_back(blank());
      }
      LILY_TRY(const Fragment item, call_value(prefix[i], fmt::format("{}[{}]", where, i)));
      parts.push_back(item);
    }
    parts.push_back(blank());
    return grammar.sequence(parts);
  }

  Fragment member(Fragment key, RuleId value) {
    return grammar.sequence({key, grammar.literal(":"), blank(), grammar.call(value)});
  }

  struct Property {
    RuleId member;
    bool required;
  };

  Result<Fragment> object(const Json& schema, const std::string& path) {
    std::vector<Property> properties;
    LILY_TRY_VOID(read_properties(schema, path, properties));
    std::optional<RuleId> extra;
    const Json* more = find(schema, "additionalProperties");
    if (more == nullptr && properties.empty()) return grammar.call(any_object_rule());
    if (more != nullptr && *more != Json(false)) {
      RuleId value = 0;
      if (*more == Json(true)) {
        value = any();
      } else {
        LILY_TRY(value, this->value(*more, at(path, "additionalProperties")));
      }
      extra = grammar.rule(member(grammar.call(string), value));
    }
    return grammar.sequence({grammar.literal("{"), members(properties, extra), grammar.literal("}")});
  }

  Result<void> read_properties(const Json& schema, const std::string& path, std::vector<Property>& out) {
    const Json* properties = find(schema, "properties");
    const Json* required = find(schema, "required");
    if (properties != nullptr && !properties->is_object()) {
      return problem(at(path, "properties"), "expected an object, found {}", properties->type_name());
    }
    std::vector<std::string> needed;
    if (required != nullptr && required->is_array()) {
      for (const Json& name : *required) {
        if (!name.is_string()) return problem(at(path, "required"), "expected names, found {}", name.dump());
        needed.push_back(name.get<std::string>());
      }
    }
    const auto add = [&](const std::string& name, RuleId value) {
      const auto found = std::ranges::find(needed, name);
      out.push_back({grammar.rule(member(grammar.literal(Json(name).dump()), value)), found != needed.end()});
      std::erase(needed, name);
    };
    if (properties != nullptr) {
      for (const auto& [name, property] : properties->items()) {
        LILY_TRY(const RuleId rule, value(property, at(at(path, "properties"), name)));
        add(name, rule);
      }
    }
    while (!needed.empty()) add(std::string(needed.front()), any());
    return {};
  }

  // Two rows of places, one before the first member and one after some: a member leads from either to the
  // second.
  Fragment members(const std::vector<Property>& properties, std::optional<RuleId> extra) {
    const auto place = [&] { return grammar.nothing().in; };
    const Fragment whole{place(), place()};
    Grammar::StateId none = place();
    Grammar::StateId some = place();
    grammar.link(whole.in, none);
    const auto connect = [&](Grammar::StateId from, Fragment part, Grammar::StateId to) {
      grammar.link(from, part.in);
      grammar.link(part.out, to);
    };
    const auto first = [&](RuleId member) { return grammar.sequence({blank(), grammar.call(member)}); };
    const auto next = [&](RuleId member) {
      return grammar.sequence({grammar.literal(","), blank(), grammar.call(member)});
    };
    for (const Property& property : properties) {
      const Grammar::StateId later = place();
      connect(none, first(property.member), later);
      connect(some, next(property.member), later);
      if (property.required) {
        none = place();  // out of reach
      } else {
        grammar.link(some, later);
      }
      some = later;
    }
    if (extra) {
      const Grammar::StateId later = place();
      connect(none, first(*extra), later);
      connect(some, next(*extra), later);
      connect(later, next(*extra), later);
      grammar.link(some, later);
      some = later;
    }
    connect(none, blank(), whole.out);
    connect(some, blank(), whole.out);
    return whole;
  }

  RuleId any() {
    if (any_value) return *any_value;
    const RuleId rule = grammar.declare();
    any_value = rule;
    const Fragment array =
        grammar.sequence({grammar.literal("["), list(rule, 0, Grammar::kUnbounded), grammar.literal("]")});
    grammar.define(rule, grammar.choice({grammar.call(string), number_grammar({}, grammar),
                                         grammar.literal("true"), grammar.literal("false"),
                                         grammar.literal("null"), array, grammar.call(any_object_rule())}));
    return rule;
  }

  RuleId any_object_rule() {
    if (any_object) return *any_object;
    const RuleId rule = grammar.declare();
    any_object = rule;
    const RuleId pair = grammar.rule(member(grammar.call(string), any()));
    grammar.define(rule, grammar.sequence({grammar.literal("{"), list(pair, 0, Grammar::kUnbounded),
                                           grammar.literal("}")}));
    return rule;
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
