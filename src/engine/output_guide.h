// Steers an answer token by token: closes the think block when its budget is used up, and holds what follows
// it to a grammar.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "engine/token_guide.h"
#include "text/grammar_automaton.h"
#include "text/tokenizer.h"

namespace lily {

struct OutputGuideOptions {
  std::shared_ptr<GrammarAutomaton> grammar = {};    ///< of the content; null: anything
  std::optional<std::int64_t> thinking_budget = {};  ///< tokens of reasoning before the block is closed
  bool in_reasoning = false;                         ///< the prompt ends inside the think block
};

class OutputGuide : public TokenGuide {
 public:
  /// `stop` are the ids that end an answer. The tokenizer outlives the guide.
  OutputGuide(const Tokenizer& tokenizer, std::vector<TokenId> stop, OutputGuideOptions options);

  std::span<const std::uint64_t> allowed() override;
  void accept(TokenId id) override;

 private:
  void close_reasoning();
  void allow_only(TokenId id);

  const Tokenizer& tokenizer_;
  std::vector<TokenId> stop_;
  OutputGuideOptions options_;
  std::optional<TokenId> end_think_;
  GrammarAutomaton::State state_ = GrammarAutomaton::kDead;
  std::int64_t reasoning_ = 0;  // tokens so far
  std::deque<TokenId> forced_;  // come next whatever the model says
  TokenMask mask_;
  TokenMask thinking_mask_;  // all but the stop ids
};

}  // namespace lily
