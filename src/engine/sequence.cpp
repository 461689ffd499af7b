#include "engine/sequence.h"

#include <utility>

namespace lily {

Result<Sequence> Sequence::create(StatePool& pool) {
  Sequence sequence(pool);
  LILY_TRY(sequence.slot_, pool.allocate_slot());
  return sequence;
}

Sequence Sequence::adopt(StatePool& pool, std::int64_t length, std::vector<PageId> pages, SlotId slot) {
  Sequence sequence(pool);
  sequence.length_ = length;
  sequence.pages_ = std::move(pages);
  sequence.slot_ = slot;
  return sequence;
}

Sequence::Sequence(Sequence&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      length_(std::exchange(other.length_, 0)),
      pending_(std::move(other.pending_)),
      pages_(std::move(other.pages_)),
      slot_(std::exchange(other.slot_, -1)) {}

Sequence& Sequence::operator=(Sequence&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(length_, other.length_);
  std::swap(pending_, other.pending_);
  std::swap(pages_, other.pages_);
  std::swap(slot_, other.slot_);
  return *this;
}

Sequence::~Sequence() {
  if (pool_ == nullptr) return;
  for (const PageId page : pages_) pool_->release_page(page);
  if (slot_ >= 0) pool_->release_slot(slot_);
}

Result<Sequence> Sequence::fork() const {
  LILY_CHECK(pending_.empty(), "fork between extend() and advance()");
  Sequence copy(*pool_);
  LILY_TRY(copy.slot_, pool_->allocate_slot());
  pool_->backend().copy_slot(slot_, copy.slot_);
  // Rows are only ever appended, so full pages can be shared; the page that will be written next cannot.
  const auto full = static_cast<std::size_t>(length() / kKvPageTokens);
  for (std::size_t i = 0; i < full; ++i) {
    pool_->share_page(pages_[i]);
    copy.pages_.push_back(pages_[i]);
  }
  if (length() % kKvPageTokens != 0) {
    LILY_TRY(const PageId page, pool_->allocate_page());
    copy.pages_.push_back(page);
    pool_->backend().copy_page(pages_[full], page);
  }
  copy.length_ = length_;
  return copy;
}

Result<Segment> Sequence::extend(std::span<const TokenId> tokens, Phase phase, Logits logits) {
  LILY_CHECK(pending_.empty(), "extend() twice without advance()");
  const auto needed = static_cast<std::size_t>(
      (length() + static_cast<std::int64_t>(tokens.size()) + kKvPageTokens - 1) / kKvPageTokens);
  const std::size_t had = pages_.size();
  while (pages_.size() < needed) {
    auto page = pool_->allocate_page();
    if (!page.ok()) {
      for (; pages_.size() > had; pages_.pop_back()) pool_->release_page(pages_.back());
      return std::move(page).error();
    }
    pages_.push_back(*page);
  }
  pending_.assign(tokens.begin(), tokens.end());
  return Segment{.tokens = pending_,
                 .position = length(),
                 .pages = pages_,
                 .slot = slot_,
                 .phase = phase,
                 .logits = logits};
}

void Sequence::advance() {
  length_ += std::ssize(pending_);
  pending_.clear();
}

}  // namespace lily
