// Which tokens may come next under a grammar. The grammar's automata with their stacks of calls are turned
// into one deterministic automaton, state by state as text reaches them; masks over the vocabulary are kept
// per state.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/grammar.h"
#include "text/token_trie.h"

namespace lily {

/// One for all answers under one grammar, so that later ones find states and masks made by earlier ones.
/// Thread-safe.
class GrammarAutomaton {
 public:
  using State = std::int32_t;
  static constexpr State kDead = -1;  ///< no text leads on from here

  /// `grammar` has no left recursion.
  GrammarAutomaton(Grammar grammar, std::shared_ptr<const TokenVocabulary> vocabulary);

  [[nodiscard]] State start() const { return start_; }
  /// Whether what was read is a whole text of the grammar.
  [[nodiscard]] bool accepts(State state) const;
  [[nodiscard]] State read(State state, std::string_view bytes);
  /// The tokens whose bytes lead on from `state`. A copy, since masks are dropped when they take too much
  /// memory.
  void allowed(State state, TokenMask& out);

  /// What there is so far, for tests and measurements.
  struct Size {
    std::size_t states = 0;
    std::size_t masks = 0;
  };
  [[nodiscard]] Size size() const;

 private:
  using Stack = std::uint32_t;  // of calls under way: an index into stacks_, 0 is the empty one
  struct Frame {
    Grammar::StateId to = 0;  // where the caller goes on
    Stack below = 0;
  };
  struct Config {
    Grammar::StateId at;
    Stack stack;
    auto operator<=>(const Config&) const = default;
  };
  using Configs = std::vector<Config>;
  static constexpr State kUnknown = -2;
  using Table = std::array<State, 256>;
  struct Node {
    Configs configs;  // sorted; those that read a byte
    bool accepts = false;
    std::unique_ptr<Table> next;
    std::unique_ptr<TokenMask> mask;
    State alike = kUnknown;  // has the same mask
  };

  State step(State state, std::uint8_t byte);
  State compute(State state, std::uint8_t byte);
  State intern(Configs begun);
  Stack push(Stack below, Grammar::StateId to);
  [[nodiscard]] ByteSet loop_bytes(State state);
  [[nodiscard]] bool wide_characters_loop(State state);
  void search(const TokenTrie& trie, State state, TokenMask& out);
  [[nodiscard]] State alike(State state);
  [[nodiscard]] Stack alike_stack(Stack stack);
  void make_room();

  const Grammar grammar_;
  const std::shared_ptr<const TokenVocabulary> vocabulary_;
  mutable std::mutex mutex_;
  std::vector<Node> nodes_;
  std::unordered_map<std::string, State> index_;  // of a node's configs, as bytes
  std::vector<Frame> stacks_;
  std::unordered_map<std::uint64_t, Stack> stack_index_;
  std::size_t tables_ = 0;
  std::size_t masks_ = 0;
  std::vector<State> path_;  // of search()
  State start_ = kDead;
};

}  // namespace lily
