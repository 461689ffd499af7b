// Tool calls in the model's markup as grammar: answers that have to call, and arguments that have to fit.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/grammar.h"

namespace lily {

struct ToolGrammarOptions {
  bool required = false;                 ///< the answer is calls alone; else text that may hold calls
  bool single = false;                   ///< of required ones, just one
  std::string only = {};                 ///< the one function that may be called; empty: any
  std::vector<std::string> strict = {};  ///< functions whose schema must be kept, or the request refused
};

/// `tools` as the chat template takes them. A call's parameters come in the order of their schema; strings
/// are any text up to the closing tag, or what enum, pattern, format and lengths allow; other values are
/// JSON. Where an answer has to call, the schema of a function that is not strict is kept if it can be, else
/// its parameters are any text. Errors name "tools[i].function.parameters...." and the keyword.
Result<Grammar> tool_grammar(const nlohmann::ordered_json& tools, const ToolGrammarOptions& options);

}  // namespace lily
