// What earlier requests computed, for later ones that begin with the same tokens: checkpoints of sequences in
// a radix tree over token ids.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/sequence.h"
#include "engine/state_pool.h"

namespace lily {

/// KV rows could be cut anywhere, but a recurrent state cannot be rewound, so a prompt resumes only where a
/// checkpoint was kept. A checkpoint is a Sequence: it shares its full KV pages with whoever else holds them,
/// and owns its recurrent slot. Used by the engine thread alone.
class PrefixCache {
 public:
  /// Holds at most `budget` bytes: slots, and the KV pages that checkpoints hold (each counted once).
  PrefixCache(StatePool& pool, std::int64_t budget);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  struct Match {
    std::optional<Sequence> sequence;  ///< the longest checkpoint that leaves a token to evaluate, forked
    std::int64_t shared = 0;           ///< tokens that `prompt` has in common with anything cached
  };
  /// kExhausted when there is no room for the fork; evict() and try again.
  Result<Match> resume(std::span<const TokenId> prompt);

  /// Keeps a fork of `sequence`, which holds `tokens`; does without if there is no room for it.
  void keep(std::span<const TokenId> tokens, const Sequence& sequence);
  /// Takes `sequence`, which holds `tokens`. Where a checkpoint stands already that one stays.
  void insert(std::span<const TokenId> tokens, Sequence sequence);

  /// Gives up one checkpoint: of those on the path not used for longest, the one that saves the fewest
  /// tokens. False when there is none.
  bool evict() { return evict_sparing(nullptr); }

  /// Every checkpoint with its tokens, the least recently used first.
  struct Entry {
    std::vector<TokenId> tokens;
    const Sequence* sequence = nullptr;
  };
  [[nodiscard]] std::vector<Entry> entries() const;

  struct Stats {
    std::int64_t budget = 0;
    std::int64_t bytes = 0;
    std::int64_t checkpoints = 0;
    std::int64_t lookups = 0;
    std::int64_t hits = 0;
    std::int64_t hit_tokens = 0;
    std::int64_t inserted = 0;
    std::int64_t evicted = 0;
  };
  [[nodiscard]] Stats stats() const;

 private:
  struct Node;
  /// The last node on `tokens`' way down, and how many of them lead there or into the edge behind it.
  struct Descent {
    Node* node = nullptr;
    std::int64_t matched = 0;
  };
  [[nodiscard]] Descent descend(std::span<const TokenId> tokens) const;
  Node* node_at(std::span<const TokenId> tokens);
  void split(Node& child, std::size_t at);
  void touch(Node* node);
  bool evict_sparing(const Node* spared);
  void drop(Node& node);
  void tidy(Node* node);
  void count(const Sequence& sequence, int change);

  StatePool& pool_;
  std::int64_t budget_;
  std::unique_ptr<Node> root_;
  std::vector<std::int32_t> page_holders_;  // checkpoints that hold the page
  std::uint64_t clock_ = 0;
  Stats stats_;
};

}  // namespace lily
