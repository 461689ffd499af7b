#include "engine/state_pool.h"

namespace lily {

StatePool::StatePool(Backend& backend, const BackendLimits& limits)
    : backend_(backend), page_owners_(static_cast<std::size_t>(limits.kv_pages), 0) {
  // Handed out from the back: lowest numbers first.
  for (auto page = static_cast<PageId>(limits.kv_pages); page-- > 0;) free_pages_.push_back(page);
  for (auto slot = static_cast<SlotId>(limits.slots); slot-- > 0;) free_slots_.push_back(slot);
}

Result<PageId> StatePool::allocate_page() {
  if (free_pages_.empty()) {
    return fail(ErrorCode::kExhausted, "all {} KV pages of {} tokens are in use", page_owners_.size(),
                kKvPageTokens);
  }
  const PageId page = free_pages_.back();
  free_pages_.pop_back();
  page_owners_[static_cast<std::size_t>(page)] = 1;
  return page;
}

Result<SlotId> StatePool::allocate_slot() {
  if (free_slots_.empty()) return fail(ErrorCode::kExhausted, "all recurrent slots are in use");
  const SlotId slot = free_slots_.back();
  free_slots_.pop_back();
  backend_.zero_slot(slot);
  return slot;
}

void StatePool::share_page(PageId page) {
  auto& owners = page_owners_[static_cast<std::size_t>(page)];
  LILY_CHECK(owners > 0, "page {} is free", page);
  ++owners;
}

void StatePool::release_page(PageId page) {
  auto& owners = page_owners_[static_cast<std::size_t>(page)];
  LILY_CHECK(owners > 0, "page {} is free already", page);
  if (--owners > 0) return;
  backend_.release_page(page);
  free_pages_.push_back(page);
}

void StatePool::release_slot(SlotId slot) {
  backend_.release_slot(slot);
  free_slots_.push_back(slot);
}

}  // namespace lily
