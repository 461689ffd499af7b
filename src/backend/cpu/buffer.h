// Memory for activations: sized once, aligned to cache lines, not touched before it is used.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

namespace lily::cpu {

/// `T` is a plain number; contents start undefined.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t size)
      : data_(static_cast<T*>(::operator new(static_cast<std::size_t>(size) * sizeof(T), kAlignment))),
        size_(size) {}

  [[nodiscard]] T* data() { return data_.get(); }
  [[nodiscard]] const T* data() const { return data_.get(); }
  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] std::int64_t bytes() const { return size_ * static_cast<std::int64_t>(sizeof(T)); }
  T& operator[](std::int64_t i) { return data_.get()[i]; }
  const T& operator[](std::int64_t i) const { return data_.get()[i]; }

  /// At least `size` elements from now on; contents are lost when it grows.
  void reserve(std::int64_t size) {
    if (size > size_) *this = Buffer(size + size / 2);
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(T* p) const { ::operator delete(p, kAlignment); }
  };
  std::unique_ptr<T, Free> data_;
  std::int64_t size_ = 0;
};

}  // namespace lily::cpu
