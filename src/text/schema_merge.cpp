#include "text/schema_merge.h"

#include "text/json_pointer.h"
#include "text/python_json.h"
#include "text/schema_reader.h"

namespace lily {

using Json = SchemaMerger::Json;
using schema::at;
using schema::problem;

Result<const Json*> SchemaMerger::resolve(const Json& ref, const std::string& path) const {
  const Json* target =
      ref.is_string() ? resolve_local_reference(root_, ref.get_ref<const std::string&>()) : nullptr;
  if (target == nullptr) {
    return problem(at(path, "$ref"), "expected a reference into this schema, found {}", schema::spelled(ref));
  }
  return target;
}

Result<const Json*> SchemaMerger::keep(Json schema, const std::string& path) {
  auto text = to_compact_json(schema);
  if (!text.ok()) return problem(path, "{}", text.error().message);
  return &kept_.try_emplace(std::move(text).value(), std::move(schema)).first->second;
}

Result<Json> SchemaMerger::merge(Json into, const Json& from, const std::string& path) {
  if (++depth_ > schema::kDeepest) return problem(path, "nested deeper than {} levels", schema::kDeepest);
  const Json* part = &from;
  Json joined;
  if (from.is_object() && from.contains("$ref")) {
    LILY_TRY(const Json* target, resolve(from["$ref"], path));
    LILY_TRY(joined, merge(schema::without(from, "$ref"), *target, path));
    part = &joined;
  }
  if (part->is_boolean() && part->get<bool>()) part = &(joined = Json::object());
  if (!part->is_object()) return problem(path, "expected schemas that can hold at once");
  for (const auto& [key, value] : part->items()) {
    if (schema::is_annotation(key)) continue;
    LILY_TRY_VOID(merge_keyword(key, value, path, into));
  }
  --depth_;
  return into;
}

Result<void> SchemaMerger::merge_keyword(const std::string& key, const Json& value, const std::string& path,
                                         Json& into) {
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
  if ((key == "required" || key == "allOf") && present.is_array() && value.is_array()) {
    present.insert(present.end(), value.begin(), value.end());
    return {};
  }
  return problem(at(path, key), "two schemas that hold at once both say it, differently: not supported");
}

}  // namespace lily
