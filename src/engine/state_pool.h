// Who owns which KV page and recurrent slot of a backend: reference counts over its numbered pages and slots.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"

namespace lily {

/// Shared by the sequences of one backend; used by the engine thread alone.
class StatePool {
 public:
  StatePool(Backend& backend, const BackendLimits& limits);

  /// kExhausted when none is free; the caller may then drop something it caches and try again.
  Result<PageId> allocate_page();
  /// A zeroed slot.
  Result<SlotId> allocate_slot();

  void share_page(PageId page);    ///< one more owner
  void release_page(PageId page);  ///< one owner less; the last one frees it
  void release_slot(SlotId slot);
  [[nodiscard]] bool is_shared(PageId page) const { return page_owners_[static_cast<std::size_t>(page)] > 1; }

  [[nodiscard]] Backend& backend() { return backend_; }
  [[nodiscard]] std::int64_t pages() const { return static_cast<std::int64_t>(page_owners_.size()); }
  [[nodiscard]] std::int64_t free_pages() const { return static_cast<std::int64_t>(free_pages_.size()); }
  [[nodiscard]] std::int64_t free_slots() const { return static_cast<std::int64_t>(free_slots_.size()); }

 private:
  Backend& backend_;
  std::vector<std::int32_t> page_owners_;
  std::vector<PageId> free_pages_;
  std::vector<SlotId> free_slots_;
};

}  // namespace lily
