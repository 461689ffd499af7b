// The functions a request offers the model, as far as reading its calls needs them: names and the types of
// their parameters.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace lily {

/// JSON types a parameter's schema allows, as a set.
struct JsonTypes {
  bool string = false;
  bool null = false;
  bool boolean = false;
  bool integer = false;
  bool number = false;
  bool object = false;
  bool array = false;
};

/// The types that `schema` allows at its top: of `type` (one or several), of all branches of anyOf, oneOf and
/// allOf, of the values of enum and const, through local references into `root`. A schema that says nothing
/// about types is a string: that is what the model writes without quotes.
[[nodiscard]] JsonTypes json_types(const nlohmann::ordered_json& schema, const nlohmann::ordered_json& root);

class ToolSet {
 public:
  using Parameters = std::map<std::string, JsonTypes, std::less<>>;

  void add(std::string name, Parameters parameters) { functions_[std::move(name)] = std::move(parameters); }
  /// The parameters of a function; null when it was not offered.
  [[nodiscard]] const Parameters* find(std::string_view name) const {
    const auto found = functions_.find(name);
    return found == functions_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] bool empty() const { return functions_.empty(); }

 private:
  std::map<std::string, Parameters, std::less<>> functions_;
};

/// `tools` as the chat template takes them: [{"type": "function", "function": {"name", "parameters"}}, ...].
[[nodiscard]] ToolSet read_tool_set(const nlohmann::ordered_json& tools);

/// A parameter's text as the model wrote it (newlines of the layout removed), as JSON text of one of `types`;
/// what fits none of them becomes a JSON string, so that no call is lost for a badly written value.
[[nodiscard]] std::string argument_json(std::string_view text, const JsonTypes& types);

/// The inside of a JSON string: `text` escaped, without quotes.
[[nodiscard]] std::string json_escaped(std::string_view text);

}  // namespace lily
