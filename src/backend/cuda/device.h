// The card: finding it, its errors as Results, and memory that frees itself.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "backend/cuda/kernels.h"
#include "base/result.h"

namespace lily::cuda {

/// A failed call as an Error that names it; memory that ran out is kExhausted.
[[nodiscard]] Result<void> checked(cudaError_t error, const char* what);
/// The first failure that note_error() kept since the last call.
[[nodiscard]] Result<void> take_error();

struct OpenDevice {
  Device device;
  std::string name;
  std::int64_t free_bytes = 0;
};
/// Device 0, or why it cannot be used: no driver, no card, one older than sm_80.
[[nodiscard]] Result<OpenDevice> open_device();

/// Bytes in device memory (or pinned on the host), freed at the end.
class Memory {
 public:
  enum class Kind { kDevice, kPinned };
  Memory() = default;
  [[nodiscard]] static Result<Memory> allocate(Kind kind, std::int64_t bytes, const char* what);
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();

  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  Kind kind_ = Kind::kDevice;
  std::byte* data_ = nullptr;
};

/// Hands out aligned parts of one allocation. With no memory behind it, it measures: plan with the same code
/// that places.
class Layout {
 public:
  explicit Layout(std::byte* base = nullptr) : base_(base) {}
  template <class T>
  [[nodiscard]] T* take(std::int64_t count) {
    constexpr std::int64_t kAlignment = 256;
    const std::int64_t at = used_;
    used_ += (count * static_cast<std::int64_t>(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
    return base_ != nullptr ? reinterpret_cast<T*>(base_ + at) : nullptr;
  }
  [[nodiscard]] std::int64_t used() const { return used_; }

 private:
  std::byte* base_;
  std::int64_t used_ = 0;
};

class Stream {
 public:
  [[nodiscard]] static Result<Stream> create();
  Stream(Stream&& other) noexcept : stream_(other.stream_), owned_(other.owned_) { other.owned_ = false; }
  Stream& operator=(Stream&&) = delete;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();
  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  Stream() = default;
  cudaStream_t stream_ = nullptr;
  bool owned_ = false;
};

}  // namespace lily::cuda
