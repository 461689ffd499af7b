#include "text/grammar_automaton.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "text/utf8.h"

namespace lily {
namespace {

// Beyond these the tables and masks are dropped and made again when asked for: 64 MiB of each.
constexpr std::size_t kMaxTables = 65'536;
constexpr std::size_t kMaxMaskBytes = 64U << 20U;
// From so many bytes that lead back to the same state on, tokens made of them are not searched one by one.
constexpr std::size_t kLoopBytes = 32;

}  // namespace

GrammarAutomaton::GrammarAutomaton(Grammar grammar, std::shared_ptr<const TokenVocabulary> vocabulary)
    : grammar_(std::move(grammar)), vocabulary_(std::move(vocabulary)), stacks_(1) {
  start_ = intern({{grammar_.start(grammar_.root()), 0}});
}

bool GrammarAutomaton::accepts(State state) const {
  const std::lock_guard lock(mutex_);
  return state != kDead && nodes_[static_cast<std::size_t>(state)].accepts;
}

GrammarAutomaton::State GrammarAutomaton::read(State state, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  for (const char c : bytes) {
    if (state == kDead) break;
    state = step(state, static_cast<std::uint8_t>(c));
  }
  return state;
}

GrammarAutomaton::Size GrammarAutomaton::size() const {
  const std::lock_guard lock(mutex_);
  return {nodes_.size(), masks_};
}

GrammarAutomaton::State GrammarAutomaton::step(State state, std::uint8_t byte) {
  Node& node = nodes_[static_cast<std::size_t>(state)];
  if (node.next == nullptr) {
    node.next = std::make_unique<Table>();
    node.next->fill(kUnknown);
    ++tables_;
  }
  const State known = (*node.next)[byte];
  if (known != kUnknown) return known;
  const State next = compute(state, byte);
  (*nodes_[static_cast<std::size_t>(state)].next)[byte] = next;  // nodes_ may have moved
  return next;
}

GrammarAutomaton::State GrammarAutomaton::compute(State state, std::uint8_t byte) {
  Configs begun;
  for (const Config& config : nodes_[static_cast<std::size_t>(state)].configs) {
    for (const Grammar::Edge& edge : grammar_.state(config.at).edges) {
      if (edge.kind != Grammar::Edge::Kind::kBytes || byte < edge.first || byte > edge.last) continue;
      begun.push_back({edge.target, config.stack});
    }
  }
  return begun.empty() ? kDead : intern(std::move(begun));
}

// Follows every edge that reads nothing, calls and returns among them; what is left can read a byte.
GrammarAutomaton::State GrammarAutomaton::intern(Configs begun) {
  Node node;
  std::set<Config> seen(begun.begin(), begun.end());
  Configs pending(seen.begin(), seen.end());
  const auto reach = [&](Config config) {
    if (seen.insert(config).second) pending.push_back(config);
  };
  while (!pending.empty()) {
    const Config config = pending.back();
    pending.pop_back();
    const Grammar::State& state = grammar_.state(config.at);
    bool reads = false;
    for (const Grammar::Edge& edge : state.edges) {
      switch (edge.kind) {
        case Grammar::Edge::Kind::kBytes:
          reads = true;
          break;
        case Grammar::Edge::Kind::kNothing:
          reach({edge.target, config.stack});
          break;
        case Grammar::Edge::Kind::kCall:
          reach({grammar_.start(edge.callee), push(config.stack, edge.target)});
          break;
      }
    }
    if (reads) node.configs.push_back(config);
    if (!state.is_final) continue;
    if (config.stack == 0) {
      node.accepts = true;
    } else {
      reach({stacks_[config.stack].to, stacks_[config.stack].below});
    }
  }
  if (node.configs.empty() && !node.accepts) return kDead;
  std::ranges::sort(node.configs);
  std::string key(reinterpret_cast<const char*>(node.configs.data()), node.configs.size() * sizeof(Config));
  key += node.accepts ? '+' : '-';
  const auto [found, is_new] = index_.try_emplace(std::move(key), static_cast<State>(nodes_.size()));
  if (is_new) nodes_.push_back(std::move(node));
  return found->second;
}

GrammarAutomaton::Stack GrammarAutomaton::push(Stack below, Grammar::StateId to) {
  const std::uint64_t key = (static_cast<std::uint64_t>(below) << 32U) | to;
  const auto [found, is_new] = stack_index_.try_emplace(key, static_cast<Stack>(stacks_.size()));
  if (is_new) stacks_.push_back({to, below});
  return found->second;
}

void GrammarAutomaton::allowed(State state, TokenMask& out) {
  const std::lock_guard lock(mutex_);
  LILY_CHECK(state != kDead, "tokens after text outside the grammar");
  if (vocabulary_->all().depth() <= Grammar::kReach) state = alike(state);
  if (const auto& kept = nodes_[static_cast<std::size_t>(state)].mask) {
    out = *kept;
    return;
  }
  make_room();
  const ByteSet loop = loop_bytes(state);
  if (loop.count() >= kLoopBytes) {
    const TokenVocabulary::Split& split = vocabulary_->split(loop);
    out = split.inside;
    search(split.others, state, out);
  } else {
    out.assign(vocabulary_->mask_words(), 0);
    search(vocabulary_->all(), state, out);
  }
  nodes_[static_cast<std::size_t>(state)].mask = std::make_unique<TokenMask>(out);
  ++masks_;
}

// The state with every place in a repetition replaced by the one that stands for it.
GrammarAutomaton::State GrammarAutomaton::alike(State state) {
  if (const State known = nodes_[static_cast<std::size_t>(state)].alike; known != kUnknown) return known;
  Configs configs = nodes_[static_cast<std::size_t>(state)].configs;
  for (Config& config : configs) config = {grammar_.alike(config.at), alike_stack(config.stack)};
  const State found = intern(std::move(configs));
  // A state that ends the text without reading on has no place to replace.
  nodes_[static_cast<std::size_t>(state)].alike = found == kDead ? state : found;
  return nodes_[static_cast<std::size_t>(state)].alike;
}

GrammarAutomaton::Stack GrammarAutomaton::alike_stack(Stack stack) {
  std::vector<Grammar::StateId> calls;
  for (; stack != 0; stack = stacks_[stack].below) calls.push_back(grammar_.alike(stacks_[stack].to));
  Stack out = 0;
  for (auto to = calls.rbegin(); to != calls.rend(); ++to) out = push(out, *to);
  return out;
}

// Inside strings most characters lead back to where they came from. For the bytes beyond ASCII it is all or
// none of them, as parts of whole characters.
ByteSet GrammarAutomaton::loop_bytes(State state) {
  ByteSet out;
  for (std::size_t byte = 0; byte < 0x80; ++byte)
    out[byte] = step(state, static_cast<std::uint8_t>(byte)) == state;
  if (wide_characters_loop(state)) {
    for (std::size_t byte = 0x80; byte < 0x100; ++byte) out[byte] = true;
  }
  return out;
}

bool GrammarAutomaton::wide_characters_loop(State state) {
  const auto after = [&](const std::set<State>& from, unsigned first, unsigned last) {
    std::set<State> to;
    for (const State at : from) {
      for (unsigned byte = first; byte <= last; ++byte) {
        to.insert(at == kDead ? kDead : step(at, static_cast<std::uint8_t>(byte)));
      }
    }
    return to;
  };
  const std::set<State> home = {state};
  return std::ranges::all_of(utf8::kForms, [&](const utf8::Form& form) {
    auto reached = after(after(home, form.first_low, form.first_high), form.second_low, form.second_high);
    for (unsigned i = 0; i < form.more; ++i) reached = after(reached, 0x80, 0xBF);
    return reached == home;
  });
}

void GrammarAutomaton::search(const TokenTrie& trie, State state, TokenMask& out) {
  path_.assign(trie.depth() + 1, kDead);
  path_[0] = state;
  const auto nodes = trie.nodes();
  for (std::size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const State next = step(path_[node.depth - 1U], node.byte);
    if (next == kDead) {
      i = node.next;
      continue;
    }
    path_[node.depth] = next;
    for (std::uint32_t t = node.tokens_begin; t < node.tokens_end; ++t) set_bit(out, trie.tokens()[t]);
    ++i;
  }
}

void GrammarAutomaton::make_room() {
  const bool many_masks = masks_ * vocabulary_->mask_words() * sizeof(std::uint64_t) > kMaxMaskBytes;
  if (!many_masks && tables_ <= kMaxTables) return;
  for (Node& node : nodes_) {
    node.mask.reset();
    node.next.reset();
  }
  masks_ = 0;
  tables_ = 0;
}

}  // namespace lily
