// The states of all sequences: recurrent slots and K/V pages, in address space reserved once. The system
// gives memory where it is touched, and takes it back on release.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "base/result.h"

namespace lily::cpu {

/// Equal-sized items of zeroed memory, numbered from 0.
class ReservedItems {
 public:
  static Result<ReservedItems> reserve(std::int64_t count, std::int64_t item_bytes, const char* what);
  ReservedItems(ReservedItems&& other) noexcept;
  ReservedItems& operator=(ReservedItems&&) = delete;
  ReservedItems(const ReservedItems&) = delete;
  ReservedItems& operator=(const ReservedItems&) = delete;
  ~ReservedItems();

  [[nodiscard]] std::byte* item(std::int64_t index) const;
  [[nodiscard]] std::int64_t item_bytes() const { return item_bytes_; }
  /// Of all of them, once touched.
  [[nodiscard]] std::int64_t bytes() const { return count_ * stride_; }
  /// Back to zeros, without memory behind it.
  void release(std::int64_t index);

 private:
  ReservedItems() = default;
  std::byte* data_ = nullptr;
  std::int64_t count_ = 0;
  std::int64_t item_bytes_ = 0;
  std::int64_t stride_ = 0;  // item_bytes_ in whole system pages
};

/// Slots: per gated-delta layer S [Hv][Dv / 32][Dk][32] f32, then the last 3 pre-convolution rows [3, C] f32.
/// Pages: [attention layer][K|V][Nkv][16 blocks], so that the K rows of a head are consecutive (kernels.h has
/// the blocks).
class StateMemory {
 public:
  static Result<StateMemory> reserve(const Shapes& shapes, const BackendLimits& limits, KvType type);

  [[nodiscard]] KvType kv_type() const { return type_; }

  [[nodiscard]] float* recurrent_state(SlotId slot, int linear_index) const;
  [[nodiscard]] float* conv_history(SlotId slot, int linear_index) const;

  /// The first block of page 0 for K (or V) of one layer and head; pages follow each other at page_stride()
  /// bytes.
  [[nodiscard]] std::byte* blocks(int attention_index, bool value, std::int64_t kv_head) const;
  [[nodiscard]] std::int64_t page_stride() const;

  [[nodiscard]] std::int64_t bytes() const { return slots_.bytes() + pages_.bytes(); }
  [[nodiscard]] ReservedItems& slots() { return slots_; }
  [[nodiscard]] ReservedItems& pages() { return pages_; }

 private:
  StateMemory(const Shapes& shapes, KvType type, ReservedItems slots, ReservedItems pages)
      : s_(shapes), type_(type), slots_(std::move(slots)), pages_(std::move(pages)) {}
  [[nodiscard]] std::int64_t layer_slot_floats() const;
  /// Of one layer's K or V rows of one head in one page.
  [[nodiscard]] std::int64_t head_bytes() const;

  Shapes s_;
  KvType type_;
  ReservedItems slots_;
  ReservedItems pages_;
};

}  // namespace lily::cpu
