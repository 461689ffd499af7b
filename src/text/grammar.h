// A context-free grammar over bytes, held as automata that call each other: what constrained output may say.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lily {

/// A set of rules. A rule is an automaton of states; text belongs to it when a path of the rule's edges
/// spells the text, from its start to a final state. Built piece by piece from fragments: parts of an
/// automaton with one way in and one way out.
class Grammar {
 public:
  using StateId = std::uint32_t;
  using RuleId = std::uint32_t;

  /// Each edge reads a byte of a range, or nothing, or what another rule spells.
  struct Edge {
    enum class Kind : std::uint8_t { kBytes, kNothing, kCall };
    Kind kind = Kind::kNothing;
    std::uint8_t first = 0;  ///< of kBytes, both ends included
    std::uint8_t last = 0;
    RuleId callee = 0;  ///< of kCall
    StateId target = 0;
  };
  struct State {
    std::vector<Edge> edges;
    bool is_final = false;
  };

  /// Part of a rule: what is spelled between two states.
  struct Fragment {
    StateId in;
    StateId out;
  };
  static constexpr std::uint32_t kUnbounded = std::numeric_limits<std::uint32_t>::max();

  [[nodiscard]] Fragment nothing();
  [[nodiscard]] Fragment bytes(std::uint8_t first, std::uint8_t last);
  /// Any byte of any of the ranges.
  [[nodiscard]] Fragment any_of(const std::vector<std::pair<std::uint8_t, std::uint8_t>>& ranges);
  /// One character that is not ASCII, in UTF-8.
  [[nodiscard]] Fragment beyond_ascii();
  [[nodiscard]] Fragment literal(std::string_view text);
  [[nodiscard]] Fragment sequence(const std::vector<Fragment>& parts);
  /// One of `parts`; of none, nothing can be spelled.
  [[nodiscard]] Fragment choice(const std::vector<Fragment>& parts);
  [[nodiscard]] Fragment optional(Fragment part);
  /// `least` to `most` times what `rule` spells.
  [[nodiscard]] Fragment repeat(RuleId rule, std::uint32_t least, std::uint32_t most);
  [[nodiscard]] Fragment call(RuleId rule);
  /// Any characters up to the first `end`, which is spelled too. `end` is ASCII and not empty.
  [[nodiscard]] Fragment until(std::string_view end);
  /// Any characters that do not hold `end`.
  [[nodiscard]] Fragment without(std::string_view end);

  /// Lets a text that has come to `from` go on at `to`, both inside one rule: for what the pieces above
  /// cannot say.
  void link(StateId from, StateId to) { add_edge(from, {.kind = Edge::Kind::kNothing, .target = to}); }

  /// A rule that is called before it is known.
  [[nodiscard]] RuleId declare();
  void define(RuleId rule, Fragment body);
  [[nodiscard]] RuleId rule(Fragment body);

  void set_root(RuleId rule) { root_ = rule; }
  [[nodiscard]] RuleId root() const { return root_; }
  [[nodiscard]] StateId start(RuleId rule) const { return starts_[rule]; }
  [[nodiscard]] const State& state(StateId id) const { return states_[id]; }
  [[nodiscard]] std::size_t size() const { return states_.size(); }
  /// A state from which the same texts of up to kReach bytes lead on as from `id`: places in a long
  /// repetition are alike as long as no end of it is near.
  static constexpr std::uint32_t kReach = 256;
  [[nodiscard]] StateId alike(StateId id) const {
    const auto found = alike_.find(id);
    return found == alike_.end() ? id : found->second;
  }

  /// Whether some rule can call itself without having read a byte: no matcher can follow that.
  [[nodiscard]] bool has_left_recursion() const;

 private:
  StateId add_state();
  void add_edge(StateId from, Edge edge) { states_[from].edges.push_back(edge); }
  void find_alike(const std::vector<StateId>& places, std::uint32_t least);
  Fragment scan(std::string_view end, bool complete);

  std::vector<State> states_;
  std::vector<StateId> starts_;  // of the rules
  std::unordered_map<StateId, StateId> alike_;
  RuleId root_ = 0;
};

}  // namespace lily
