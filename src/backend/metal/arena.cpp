#include "backend/metal/arena.h"

#include <algorithm>
#include <numeric>

namespace lily::metal {

View Arena::take_bytes(std::int64_t bytes) {
  constexpr auto kAlignment = static_cast<std::int64_t>(kBufferAlignment);
  const std::int64_t rounded = (std::max<std::int64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  if (sizes_.empty()) sizes_.push_back(0);
  if (sizes_[at_] > 0 && sizes_[at_] + rounded > max_) {
    if (++at_ == sizes_.size()) sizes_.push_back(0);
  }
  const std::int64_t offset = sizes_[at_];
  sizes_[at_] += rounded;
  const GpuBuffer* buffer = at_ < buffers_.size() ? buffers_[at_].get() : nullptr;
  return {.buffer = buffer, .offset = offset, .size = bytes};
}

Result<void> Arena::allocate(GpuDevice& device, std::string_view what) {
  LILY_CHECK(buffers_.empty(), "{} allocated twice", what);
  for (std::int64_t& size : sizes_) {
    LILY_TRY(auto buffer, device.allocate(static_cast<std::size_t>(size), what));
    buffers_.push_back(std::move(buffer));
    size = 0;
  }
  at_ = 0;
  return {};
}

std::int64_t Arena::used() const {
  return std::accumulate(sizes_.begin(), sizes_.end(), std::int64_t{0});
}

}  // namespace lily::metal
