#include "engine/prefix_cache.h"

#include <algorithm>
#include <utility>

namespace lily {

struct PrefixCache::Node {
  std::vector<TokenId> edge;  // the tokens between the parent and here
  std::int64_t end = 0;       // tokens between the root and here
  Node* parent = nullptr;
  std::map<TokenId, std::unique_ptr<Node>> children;  // by the first token of their edge
  std::optional<Sequence> checkpoint;                 // every leaf has one
  std::uint64_t used = 0;                             // when this node or one below it was last used

  /// Tokens that would be evaluated again without this checkpoint.
  [[nodiscard]] std::int64_t saves() const {
    const Node* above = parent;
    while (above != nullptr && !above->checkpoint) above = above->parent;
    return end - (above != nullptr ? above->end : 0);
  }
  void append_checkpoints(std::vector<Node*>& out) {
    if (checkpoint) out.push_back(this);
    for (const auto& [first, child] : children) child->append_checkpoints(out);
  }
};

PrefixCache::PrefixCache(StatePool& pool, std::int64_t budget)
    : pool_(pool),
      budget_(budget),
      root_(std::make_unique<Node>()),
      page_holders_(static_cast<std::size_t>(pool.pages()), 0) {
  stats_.budget = budget;
}

PrefixCache::~PrefixCache() = default;

PrefixCache::Descent PrefixCache::descend(std::span<const TokenId> tokens) const {
  Descent at{root_.get(), 0};
  while (at.matched < std::ssize(tokens)) {
    const auto rest = tokens.subspan(static_cast<std::size_t>(at.matched));
    const auto found = at.node->children.find(rest.front());
    if (found == at.node->children.end()) return at;
    const auto& edge = found->second->edge;
    const auto common = std::ranges::mismatch(edge, rest).in1 - edge.begin();
    at.matched += common;
    if (common < std::ssize(edge)) return at;
    at.node = found->second.get();
  }
  return at;
}

Result<PrefixCache::Match> PrefixCache::resume(std::span<const TokenId> prompt) {
  Match match;
  const Descent at = descend(prompt);
  match.shared = at.matched;
  Node* node = at.node;
  while (node != nullptr && !(node->checkpoint && node->end < std::ssize(prompt))) node = node->parent;
  if (node != nullptr) {
    touch(node);
    LILY_TRY(match.sequence, node->checkpoint->fork());
    ++stats_.hits;
    stats_.hit_tokens += node->end;
  }
  ++stats_.lookups;
  return match;
}

void PrefixCache::keep(std::span<const TokenId> tokens, const Sequence& sequence) {
  if (budget_ == 0) return;
  const Descent at = descend(tokens);
  if (at.node->end == std::ssize(tokens) && at.node->checkpoint) return touch(at.node);
  auto fork = sequence.fork();
  while (!fork.ok() && evict()) fork = sequence.fork();
  if (fork.ok()) insert(tokens, std::move(*fork));
}

void PrefixCache::insert(std::span<const TokenId> tokens, Sequence sequence) {
  LILY_CHECK(sequence.length() == std::ssize(tokens), "{} tokens of a sequence of {}", tokens.size(),
             sequence.length());
  if (budget_ == 0 || tokens.empty()) return;
  Node* node = node_at(tokens);
  touch(node);
  if (node->checkpoint) return;
  count(sequence, +1);
  node->checkpoint = std::move(sequence);
  ++stats_.inserted;
  while (stats_.bytes > budget_ && evict_sparing(node)) {
  }
  if (stats_.bytes > budget_) drop(*node);
}

// The node that stands for `tokens`, made if there is none.
PrefixCache::Node* PrefixCache::node_at(std::span<const TokenId> tokens) {
  Descent at = descend(tokens);
  if (at.matched > at.node->end) {
    auto& child = *at.node->children.at(tokens[static_cast<std::size_t>(at.node->end)]);
    split(child, static_cast<std::size_t>(at.matched - at.node->end));
    at.node = child.parent;
  }
  if (at.matched == std::ssize(tokens)) return at.node;
  const auto rest = tokens.subspan(static_cast<std::size_t>(at.matched));
  auto leaf = std::make_unique<Node>();
  leaf->edge.assign(rest.begin(), rest.end());
  leaf->end = std::ssize(tokens);
  leaf->parent = at.node;
  return (at.node->children[rest.front()] = std::move(leaf)).get();
}

// Puts a node between `child` and its parent, after `at` tokens of the edge.
void PrefixCache::split(Node& child, std::size_t at) {
  auto& place = child.parent->children.at(child.edge.front());
  const auto middle_of_edge = child.edge.begin() + static_cast<std::ptrdiff_t>(at);
  auto middle = std::make_unique<Node>();
  middle->edge.assign(child.edge.begin(), middle_of_edge);
  middle->end = child.parent->end + static_cast<std::int64_t>(at);
  middle->parent = child.parent;
  middle->used = child.used;
  child.edge.erase(child.edge.begin(), middle_of_edge);
  child.parent = middle.get();
  middle->children[child.edge.front()] = std::exchange(place, nullptr);
  place = std::move(middle);
}

void PrefixCache::touch(Node* node) {
  ++clock_;
  for (; node != nullptr; node = node->parent) node->used = clock_;
}

bool PrefixCache::evict_sparing(const Node* spared) {
  std::vector<Node*> nodes;
  root_->append_checkpoints(nodes);
  std::erase(nodes, spared);
  if (nodes.empty()) return false;
  drop(**std::ranges::min_element(nodes, {}, [](const Node* n) { return std::pair(n->used, n->saves()); }));
  ++stats_.evicted;
  return true;
}

void PrefixCache::drop(Node& node) {
  count(*node.checkpoint, -1);
  node.checkpoint.reset();
  tidy(&node);
}

// Removes a node that stands for nothing any more: neither checkpoint nor branching.
void PrefixCache::tidy(Node* node) {
  Node* parent = node->parent;
  if (parent == nullptr || node->checkpoint || node->children.size() > 1) return;
  auto& place = parent->children.at(node->edge.front());
  if (node->children.empty()) {
    const TokenId first = node->edge.front();
    parent->children.erase(first);
    return tidy(parent);
  }
  auto child = std::move(node->children.begin()->second);
  child->edge.insert(child->edge.begin(), node->edge.begin(), node->edge.end());
  child->parent = parent;
  place = std::move(child);  // and `node` is gone
}

// Adds a checkpoint's memory to the account, or takes it off.
void PrefixCache::count(const Sequence& sequence, int change) {
  stats_.checkpoints += change;
  stats_.bytes += change * pool_.backend().slot_bytes();
  for (const PageId page : sequence.pages()) {
    auto& holders = page_holders_[static_cast<std::size_t>(page)];
    const bool was_held = holders > 0;
    holders += change;
    if (was_held != (holders > 0)) stats_.bytes += change * pool_.backend().page_bytes();
  }
}

std::vector<PrefixCache::Entry> PrefixCache::entries() const {
  std::vector<Node*> nodes;
  root_->append_checkpoints(nodes);
  std::ranges::stable_sort(nodes, {}, &Node::used);
  std::vector<Entry> entries;
  for (const Node* node : nodes) {
    Entry entry{std::vector<TokenId>(static_cast<std::size_t>(node->end)), &*node->checkpoint};
    for (const Node* part = node; part->parent != nullptr; part = part->parent) {
      std::ranges::copy(part->edge, entry.tokens.begin() + part->parent->end);
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

PrefixCache::Stats PrefixCache::stats() const {
  return stats_;
}

}  // namespace lily
