#include "backend/cpu/state_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace lily::cpu {

Result<ReservedItems> ReservedItems::reserve(std::int64_t count, std::int64_t item_bytes, const char* what) {
  ReservedItems items;
  items.count_ = count;
  items.item_bytes_ = item_bytes;
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  items.stride_ = (item_bytes + page - 1) / page * page;
  if (count == 0 || item_bytes == 0) return items;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#ifdef MAP_NORESERVE
  flags |= MAP_NORESERVE;
#endif
  const auto bytes = static_cast<std::size_t>(count * items.stride_);
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (data == MAP_FAILED) {
    return fail(ErrorCode::kExhausted, "no address space for {} {} of {} bytes: {}", count, what, item_bytes,
                std::strerror(errno));
  }
  items.data_ = static_cast<std::byte*>(data);
#ifdef MADV_HUGEPAGE
  madvise(data, bytes, MADV_HUGEPAGE);  // a hint: the recurrence walks megabytes a layer
#endif
  return items;
}

ReservedItems::ReservedItems(ReservedItems&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      count_(other.count_),
      item_bytes_(other.item_bytes_),
      stride_(other.stride_) {}

ReservedItems::~ReservedItems() {
  if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(count_ * stride_));
}

std::byte* ReservedItems::item(std::int64_t index) const {
  LILY_CHECK(index >= 0 && index < count_, "item {} of {}", index, count_);
  return data_ + index * stride_;
}

void ReservedItems::release(std::int64_t index) {
  if (item_bytes_ == 0) return;
#ifdef __linux__
  madvise(item(index), static_cast<std::size_t>(stride_), MADV_DONTNEED);
#else
  madvise(item(index), static_cast<std::size_t>(stride_), MADV_FREE);
#endif
}

Result<StateMemory> StateMemory::reserve(const Shapes& shapes, const BackendLimits& limits, KvType type) {
  const std::int64_t slot_bytes =
      shapes.linear_layers * (shapes.recurrent_state_size() + kConvHistory * shapes.conv_channels()) * 4;
  const std::int64_t page_bytes =
      shapes.attention_layers * 2 * kKvPageTokens * shapes.kv_heads * kv_row_bytes(type);
  LILY_TRY(ReservedItems slots, ReservedItems::reserve(limits.slots, slot_bytes, "recurrent states"));
  LILY_TRY(ReservedItems pages, ReservedItems::reserve(limits.kv_pages, page_bytes, "K/V pages"));
  return StateMemory(shapes, type, std::move(slots), std::move(pages));
}

std::int64_t StateMemory::layer_slot_floats() const {
  return s_.recurrent_state_size() + kConvHistory * s_.conv_channels();
}

float* StateMemory::recurrent_state(SlotId slot, int linear_index) const {
  return reinterpret_cast<float*>(slots_.item(slot)) + linear_index * layer_slot_floats();
}

float* StateMemory::conv_history(SlotId slot, int linear_index) const {
  return recurrent_state(slot, linear_index) + s_.recurrent_state_size();
}

std::int64_t StateMemory::head_bytes() const {
  return kKvPageTokens * kv_row_bytes(type_);
}

std::byte* StateMemory::blocks(int attention_index, bool value, std::int64_t kv_head) const {
  return pages_.item(0) + ((attention_index * 2 + (value ? 1 : 0)) * s_.kv_heads + kv_head) * head_bytes();
}

std::int64_t StateMemory::page_stride() const {
  return s_.attention_layers * 2 * s_.kv_heads * head_bytes();  // multiples of 4 KiB: items without padding
}

}  // namespace lily::cpu
