// JSON Schema as grammar: the JSON texts that an answer under a schema may be.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "text/grammar.h"

namespace lily {

/// Adds rules for the values of schemas to a grammar. What it makes is a part of what the schema allows,
/// wherever JSON leaves a choice that a reader does not care about: properties come in the order of the
/// schema, numbers have at most 18 digits before the point and 17 behind it, blanks are at most one space, or
/// one line break with its indentation. Objects with listed properties take others only if
/// additionalProperties says so; oneOf is anyOf; unknown formats and unknown keywords say nothing. A keyword
/// whose meaning would be lost is an error.
class JsonSchemaCompiler {
 public:
  /// `root` is what references are resolved in; both outlive the compiler.
  JsonSchemaCompiler(const nlohmann::ordered_json& root, Grammar& grammar);
  ~JsonSchemaCompiler();
  JsonSchemaCompiler(const JsonSchemaCompiler&) = delete;
  JsonSchemaCompiler& operator=(const JsonSchemaCompiler&) = delete;

  /// The JSON texts of values of `schema`, a part of the root that stands at `path` there (for messages: the
  /// path of an error is that of the keyword at fault).
  Result<Grammar::RuleId> value(const nlohmann::ordered_json& schema, const std::string& path);

  /// The strings of a schema that allows strings, as they are, without quotes and escapes. Nullopt where any
  /// text will do, or where something beside strings is allowed.
  Result<std::optional<Grammar::Fragment>> raw_string(const nlohmann::ordered_json& schema,
                                                      const std::string& path);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The whole answer: a JSON text of the schema, behind at most two line breaks.
Result<Grammar> json_schema_grammar(const nlohmann::ordered_json& schema);

}  // namespace lily
