#include "text/grammar.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <unordered_set>

#include "base/check.h"
#include "text/utf8.h"

namespace lily {

using Edge = Grammar::Edge;
using Fragment = Grammar::Fragment;

Grammar::StateId Grammar::add_state() {
  states_.emplace_back();
  return static_cast<StateId>(states_.size() - 1);
}

Fragment Grammar::nothing() {
  const StateId in = add_state();
  return {in, in};
}

Fragment Grammar::bytes(std::uint8_t first, std::uint8_t last) {
  return any_of({{first, last}});
}

Fragment Grammar::any_of(const std::vector<std::pair<std::uint8_t, std::uint8_t>>& ranges) {
  const Fragment out{add_state(), add_state()};
  for (const auto& [first, last] : ranges) {
    add_edge(out.in, {.kind = Edge::Kind::kBytes, .first = first, .last = last, .target = out.out});
  }
  return out;
}

Fragment Grammar::beyond_ascii() {
  const auto read = [&](StateId from, std::uint8_t first, std::uint8_t last, StateId to) {
    add_edge(from, {.kind = Edge::Kind::kBytes, .first = first, .last = last, .target = to});
  };
  // due[n]: n more bytes from 0x80 to 0xBF are to come.
  const std::array<StateId, 4> due = {add_state(), add_state(), add_state(), add_state()};
  for (std::size_t n = 1; n < due.size(); ++n) read(due[n], 0x80, 0xBF, due[n - 1]);
  const Fragment out{add_state(), due[0]};
  for (const utf8::Form& form : utf8::kForms) {
    const bool any_second = form.second_low == 0x80 && form.second_high == 0xBF;
    const StateId second = any_second ? due[form.more + 1U] : add_state();
    read(out.in, form.first_low, form.first_high, second);
    if (!any_second) read(second, form.second_low, form.second_high, due[form.more]);
  }
  return out;
}

Fragment Grammar::literal(std::string_view text) {
  Fragment out = nothing();
  for (const char c : text) {
    const StateId next = add_state();
    const auto byte = static_cast<std::uint8_t>(c);
    add_edge(out.out, {.kind = Edge::Kind::kBytes, .first = byte, .last = byte, .target = next});
    out.out = next;
  }
  return out;
}

Fragment Grammar::sequence(const std::vector<Fragment>& parts) {
  Fragment out = nothing();
  for (const Fragment& part : parts) {
    link(out.out, part.in);
    out.out = part.out;
  }
  return out;
}

Fragment Grammar::choice(const std::vector<Fragment>& parts) {
  const Fragment out{add_state(), add_state()};
  for (const Fragment& part : parts) {
    link(out.in, part.in);
    link(part.out, out.out);
  }
  return out;
}

Fragment Grammar::optional(Fragment part) {
  return choice({part, nothing()});
}

Fragment Grammar::repeat(RuleId rule, std::uint32_t least, std::uint32_t most) {
  Fragment out = nothing();
  std::vector<StateId> places = {out.in};
  const auto step = [&] {
    const StateId next = add_state();
    add_edge(out.out, {.kind = Edge::Kind::kCall, .callee = rule, .target = next});
    out.out = next;
    places.push_back(next);
  };
  for (std::uint32_t i = 0; i < least; ++i) step();
  if (most == kUnbounded) {
    // A state of its own, so that the loop does not run through what comes before.
    const StateId loop = add_state();
    link(out.out, loop);
    add_edge(loop, {.kind = Edge::Kind::kCall, .callee = rule, .target = loop});
    out.out = loop;
    return out;
  }
  const StateId end = add_state();
  for (std::uint32_t i = least; i < most; ++i) {
    link(out.out, end);
    step();
  }
  link(out.out, end);
  out.out = end;
  find_alike(places, least);
  return out;
}

// places[i] stands before the i-th repetition; each takes a byte at least.
void Grammar::find_alike(const std::vector<StateId>& places, std::uint32_t least) {
  std::optional<StateId> must_go_on;
  std::optional<StateId> may_end;
  for (std::size_t i = 0; i + kReach < places.size(); ++i) {
    if (i + kReach < least) {
      alike_[places[i]] = *(must_go_on = must_go_on.value_or(places[i]));
    } else if (i >= least) {
      alike_[places[i]] = *(may_end = may_end.value_or(places[i]));
    }
  }
}

Fragment Grammar::call(RuleId rule) {
  return repeat(rule, 1, 1);
}

// Knuth, Morris and Pratt's automaton: state n has seen the first n bytes of `end`, and no whole one. A
// character beyond ASCII leads back to the first from everywhere.
Fragment Grammar::scan(std::string_view end, bool complete) {
  const bool ascii = std::ranges::all_of(end, [](char c) { return static_cast<std::uint8_t>(c) < 0x80; });
  LILY_CHECK(!end.empty() && ascii, "text up to '{}'", end);
  std::vector<StateId> seen;
  for (std::size_t n = 0; n < end.size(); ++n) seen.push_back(add_state());
  const StateId out = add_state();
  const Fragment wide = beyond_ascii();
  link(wide.out, seen[0]);
  for (std::size_t n = 0; n < end.size(); ++n) {
    link(seen[n], wide.in);
    std::array<std::size_t, 128> next{};
    for (std::size_t byte = 0; byte < next.size(); ++byte) {
      std::string text(end.substr(0, n));
      text += static_cast<char>(byte);
      std::size_t length = text.size();
      while (length > 0 && !end.starts_with(std::string_view(text).substr(text.size() - length))) --length;
      next[byte] = length;
    }
    for (std::size_t first = 0; first < next.size();) {
      std::size_t last = first;
      while (last + 1 < next.size() && next[last + 1] == next[first]) ++last;
      const bool ends = next[first] == end.size();
      if (!ends || complete) {
        add_edge(seen[n], {.kind = Edge::Kind::kBytes,
                           .first = static_cast<std::uint8_t>(first),
                           .last = static_cast<std::uint8_t>(last),
                           .target = ends ? out : seen[next[first]]});
      }
      first = last + 1;
    }
    if (!complete) link(seen[n], out);
  }
  return {seen[0], out};
}

Fragment Grammar::until(std::string_view end) {
  return scan(end, true);
}

Fragment Grammar::without(std::string_view end) {
  return scan(end, false);
}

Grammar::RuleId Grammar::declare() {
  starts_.push_back(add_state());
  return static_cast<RuleId>(starts_.size() - 1);
}

void Grammar::define(RuleId rule, Fragment body) {
  link(starts_[rule], body.in);
  const StateId end = add_state();
  states_[end].is_final = true;
  link(body.out, end);
}

Grammar::RuleId Grammar::rule(Fragment body) {
  const RuleId id = declare();
  define(id, body);
  return id;
}

namespace {

// The states of a rule that are reached without a byte, given which rules can spell nothing.
struct Reach {
  std::vector<Grammar::RuleId> calls;
  bool final = false;
};

Reach reach(const Grammar& grammar, Grammar::RuleId rule, const std::vector<bool>& empty) {
  Reach out;
  std::vector<Grammar::StateId> pending = {grammar.start(rule)};
  std::unordered_set<Grammar::StateId> seen(pending.begin(), pending.end());
  while (!pending.empty()) {
    const Grammar::State& state = grammar.state(pending.back());
    pending.pop_back();
    out.final = out.final || state.is_final;
    for (const Edge& edge : state.edges) {
      if (edge.kind == Edge::Kind::kBytes) continue;
      if (edge.kind == Edge::Kind::kCall) {
        out.calls.push_back(edge.callee);
        if (!empty[edge.callee]) continue;
      }
      if (seen.insert(edge.target).second) pending.push_back(edge.target);
    }
  }
  return out;
}

}  // namespace

bool Grammar::has_left_recursion() const {
  std::vector<bool> empty(starts_.size());
  std::vector<Reach> reached(starts_.size());
  for (bool changed = true; changed;) {
    changed = false;
    for (RuleId rule = 0; rule < starts_.size(); ++rule) {
      reached[rule] = reach(*this, rule, empty);
      if (reached[rule].final && !empty[rule]) changed = empty[rule] = true;
    }
  }
  // Depth first over "calls before any byte": a rule met again on the way is a cycle.
  enum class Mark : std::uint8_t { kNew, kOnTheWay, kDone };
  std::vector<Mark> marks(starts_.size(), Mark::kNew);
  for (RuleId first = 0; first < starts_.size(); ++first) {
    std::vector<std::pair<RuleId, std::size_t>> way;
    if (marks[first] == Mark::kNew) way.emplace_back(first, 0);
    while (!way.empty()) {
      auto& [rule, next] = way.back();
      marks[rule] = Mark::kOnTheWay;
      if (next == reached[rule].calls.size()) {
        marks[rule] = Mark::kDone;
        way.pop_back();
        continue;
      }
      const RuleId callee = reached[rule].calls[next++];
      if (marks[callee] == Mark::kOnTheWay) return true;
      if (marks[callee] == Mark::kNew) way.emplace_back(callee, 0);
    }
  }
  return false;
}

}  // namespace lily
