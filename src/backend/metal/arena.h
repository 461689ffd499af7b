// Parts of few large device buffers. Placing runs twice with the same code: first to measure, then, after
// allocate(), to hand out views of real memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "backend/metal/gpu_device.h"

namespace lily::metal {

/// A part of a buffer.
struct View {
  const GpuBuffer* buffer = nullptr;
  std::int64_t offset = 0;
  std::int64_t size = 0;

  /// What follows the first `bytes`.
  [[nodiscard]] View from(std::int64_t bytes) const {
    return {.buffer = buffer, .offset = offset + bytes, .size = size - bytes};
  }
  template <class T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(buffer->contents() + offset);
  }
};

class Arena {
 public:
  /// No buffer gets larger than `max_buffer_bytes`; a part never lies in two.
  explicit Arena(std::int64_t max_buffer_bytes) : max_(max_buffer_bytes) {}

  [[nodiscard]] View take_bytes(std::int64_t bytes);
  template <class T>
  [[nodiscard]] View take(std::int64_t count) {
    return take_bytes(count * static_cast<std::int64_t>(sizeof(T)));
  }
  /// Allocates what was taken so far; the next part taken is the first again.
  [[nodiscard]] Result<void> allocate(GpuDevice& device, std::string_view what);
  [[nodiscard]] std::int64_t used() const;

 private:
  std::int64_t max_;
  std::size_t at_ = 0;               ///< buffer that parts come from
  std::vector<std::int64_t> sizes_;  ///< of each buffer, so far
  std::vector<std::unique_ptr<GpuBuffer>> buffers_;
};

}  // namespace lily::metal
