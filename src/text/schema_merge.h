// JSON Schemas that hold at once, put together into one: allOf, and what stands beside $ref, anyOf and oneOf.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"

namespace lily {

class SchemaMerger {
 public:
  using Json = nlohmann::ordered_json;

  /// `root` is what references are resolved in; it outlives the merger.
  explicit SchemaMerger(const Json& root) : root_(root) {}

  /// What a $ref of the schema at `path` points at.
  [[nodiscard]] Result<const Json*> resolve(const Json& ref, const std::string& path) const;

  /// Both schemas at once. An error where they say the same keyword differently and it cannot be joined.
  Result<Json> merge(Json into, const Json& from, const std::string& path);

  /// The schema at an address that stays. Equal ones are one, so that a recursion through them comes back to
  /// where it was.
  Result<const Json*> keep(Json schema, const std::string& path);

 private:
  static Result<void> merge_keyword(const std::string& key, const Json& value, const std::string& path,
                                    Json& into);

  const Json& root_;
  std::map<std::string, Json> kept_;  // by their text
  int depth_ = 0;
};

}  // namespace lily
