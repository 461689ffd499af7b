#include "server/constraints.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/output_guide.h"
#include "server/json.h"
#include "text/json_schema.h"
#include "text/output_parser.h"
#include "text/tool_grammar.h"

namespace lily {
namespace {

constexpr std::size_t kKeptGrammars = 16;

bool must_call(const ChatTools& tools) {
  return tools.choice.kind == ToolChoice::Kind::kRequired || tools.choice.kind == ToolChoice::Kind::kNamed;
}

ToolGrammarOptions tool_options(const ChatTools& tools) {
  const bool named = tools.choice.kind == ToolChoice::Kind::kNamed;
  return {.required = must_call(tools),
          .single = named || !tools.parallel,
          .only = named ? tools.choice.name : "",
          .strict = tools.strict};
}

// What the grammar is made from, as text.
std::string key_of(const ChatRequest& request) {
  const bool calls =
      request.tools.set != nullptr && (must_call(request.tools) || !request.tools.strict.empty());
  if (!calls) return request.schema != nullptr ? "schema " + dump_json(*request.schema) : "";
  const ToolGrammarOptions options = tool_options(request.tools);
  return dump_json(
      {"tools", options.required, options.single, options.only, options.strict, *request.tools.definitions});
}

// "tools[0].function.parameters.x: ..." names the field; a schema's path stands below where the schema does.
ApiError refuse(const Error& error, const std::string& schema_field) {
  const std::size_t colon = error.message.find(": ");
  std::string place = error.message.substr(0, colon);
  if (!schema_field.empty()) place = place == "schema" ? schema_field : schema_field + "." + place;
  return unsupported_field(place, error.message.substr(std::min(colon + 2, error.message.size())));
}

}  // namespace

std::variant<std::shared_ptr<TokenGuide>, ApiError> Constraints::guide(const ChatRequest& request,
                                                                       std::span<const TokenId> prompt) {
  auto made = automaton(request);
  if (auto* error = std::get_if<ApiError>(&made)) return std::move(*error);
  auto& grammar = std::get<Automaton>(made);
  if (grammar == nullptr && !request.thinking_budget) return nullptr;
  const Tokenizer& tokenizer = *model_.tokenizer();
  const bool in_reasoning = !request.prompt && starts_in_reasoning(tokenizer, prompt);
  return std::make_shared<OutputGuide>(
      tokenizer, model_.eos(), OutputGuideOptions{std::move(grammar), request.thinking_budget, in_reasoning});
}

std::variant<Constraints::Automaton, ApiError> Constraints::automaton(const ChatRequest& request) {
  std::string key = key_of(request);
  if (key.empty()) return nullptr;
  if (auto found = kept(key)) return found;
  const bool schema = key.starts_with("schema ");
  auto grammar = schema ? json_schema_grammar(*request.schema)
                        : tool_grammar(*request.tools.definitions, tool_options(request.tools));
  if (!grammar.ok()) return refuse(grammar.error(), schema ? request.schema_field : "");
  return keep(std::move(key), std::move(grammar).value());
}

Constraints::Automaton Constraints::kept(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(grammars_, key, &std::pair<std::string, Automaton>::first);
  if (found == grammars_.end()) return nullptr;
  grammars_.splice(grammars_.begin(), grammars_, found);
  return found->second;
}

Constraints::Automaton Constraints::keep(std::string key, Grammar grammar) {
  const std::lock_guard lock(mutex_);
  if (vocabulary_ == nullptr) vocabulary_ = std::make_shared<const TokenVocabulary>(*model_.tokenizer());
  grammars_.emplace_front(std::move(key),
                          std::make_shared<GrammarAutomaton>(std::move(grammar), vocabulary_));
  if (grammars_.size() > kKeptGrammars) grammars_.pop_back();
  return grammars_.front().second;
}

}  // namespace lily
