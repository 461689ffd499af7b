// What a request demands of its answer's form, made into what guides the sampler.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <variant>

#include "engine/loaded_model.h"
#include "engine/token_guide.h"
#include "server/chat_request.h"
#include "server/errors.h"
#include "text/grammar_automaton.h"

namespace lily {

/// Thread-safe. The last grammars are kept, with the masks that answers under them have needed: agents send
/// the same schema and tools again and again.
class Constraints {
 public:
  /// The model has a tokenizer and outlives this.
  explicit Constraints(const LoadedModel& model) : model_(model) {}

  /// Null when anything may be said. An error names the part of the schema that cannot be held to.
  std::variant<std::shared_ptr<TokenGuide>, ApiError> guide(const ChatRequest& request,
                                                            std::span<const TokenId> prompt);

 private:
  using Automaton = std::shared_ptr<GrammarAutomaton>;
  std::variant<Automaton, ApiError> automaton(const ChatRequest& request);
  Automaton kept(const std::string& key);
  Automaton keep(std::string key, Grammar grammar);

  const LoadedModel& model_;
  std::mutex mutex_;
  std::shared_ptr<const TokenVocabulary> vocabulary_;      // made when it is first needed
  std::list<std::pair<std::string, Automaton>> grammars_;  // the last used first
};

}  // namespace lily
