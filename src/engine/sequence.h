// One timeline's state on the device: KV pages and a recurrent slot. Which tokens made it is its owner's
// knowledge.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "engine/state_pool.h"

namespace lily {

/// Move-only. KV pages can be shared and cut, a recurrent state cannot be rewound: going back means restoring
/// a Sequence that was forked earlier. A fork is a snapshot; restoring is forking it again.
class Sequence {
 public:
  /// An empty sequence: no tokens, a zero recurrent state.
  static Result<Sequence> create(StatePool& pool);
  /// The sequence of `length` tokens whose state lies in `pages` and `slot`, which it takes over.
  static Sequence adopt(StatePool& pool, std::int64_t length, std::vector<PageId> pages, SlotId slot);

  Sequence(Sequence&& other) noexcept;
  Sequence& operator=(Sequence&& other) noexcept;
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;
  ~Sequence();

  /// The same state at the same position, independent from here on. Full pages are shared, the last partial
  /// page and the recurrent slot are copied.
  Result<Sequence> fork() const;

  [[nodiscard]] std::int64_t length() const { return length_; }  ///< tokens it holds
  [[nodiscard]] std::span<const PageId> pages() const { return pages_; }
  [[nodiscard]] SlotId slot() const { return slot_; }

  /// Makes room for `tokens` and describes them as a segment of the next step. The spans stay valid until
  /// advance(). On error nothing has changed; after a step that failed the sequence is
  /// good for destruction only.
  Result<Segment> extend(std::span<const TokenId> tokens, Phase phase, Logits logits);
  /// The step with the extended segment succeeded: the tokens are part of the sequence now.
  void advance();

 private:
  explicit Sequence(StatePool& pool) : pool_(&pool) {}
  StatePool* pool_ = nullptr;
  std::int64_t length_ = 0;
  std::vector<TokenId> pending_;
  std::vector<PageId> pages_;
  SlotId slot_ = -1;
};

}  // namespace lily
