// What the kernel tests share: devices to run on, poisoned outputs, matrices and plain f32 answers.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "backend/metal/kernels/kernels.h"
#include "tests/backend/metal/device_case.h"
#include "tests/backend/quantized_matrix.h"

namespace lily::testing {

using Buffer = std::unique_ptr<metal::GpuBuffer>;
using Floats = std::vector<float>;

/// The device of these tests: race-checked where the test is built with it, else with lanes in random order.
[[nodiscard]] metal::EmulatedDevice& kernel_device();

template <class T>
[[nodiscard]] Buffer upload(const std::vector<T>& values) {
  return buffer_of(kernel_device(), values);
}
template <class T>
[[nodiscard]] Buffer argument(const T& value) {
  return upload(std::vector<T>{value});
}
/// `count` floats that nobody wrote: NaN until a kernel does.
[[nodiscard]] inline Buffer poisoned(std::int64_t count) {
  return upload(Floats(static_cast<std::size_t>(count), std::numeric_limits<float>::quiet_NaN()));
}
[[nodiscard]] inline Floats floats_of(const Buffer& buffer) {
  return values_of<float>(*buffer);
}

struct Shape {
  metal::Extents groups;
  std::uint32_t threads;
};
/// Runs `kernel` with buffers 0, 1, 2, ... and expects it to succeed. `small_groups`: weights in groups
/// of 32.
void expect_run(const std::string& kernel, std::vector<const metal::GpuBuffer*> buffers, const Shape& shape,
                bool small_groups = false);

/// NaN where `got` is not a number anywhere: the largest difference, relative to the largest value.
[[nodiscard]] double largest_error(const Floats& got, const Floats& expected);

/// bf16 or half numbers for and from a device.
[[nodiscard]] std::vector<std::uint16_t> to_bf16(const Floats& values);
[[nodiscard]] Floats from_bf16(const std::vector<std::uint16_t>& values);
[[nodiscard]] std::vector<_Float16> to_half(const Floats& values);
[[nodiscard]] Floats from_half(const std::vector<_Float16>& values);

/// A random quantised matrix, on the device and in f32.
class MatrixCase {
 public:
  MatrixCase(std::int64_t experts, std::int64_t out, std::int64_t in, int bits, std::uint32_t seed,
             int group_size = metal::kGroup);
  /// Codes, scales and biases.
  [[nodiscard]] std::vector<const metal::GpuBuffer*> buffers() const;
  /// row . x
  [[nodiscard]] float dot(std::int64_t expert, std::int64_t row, std::span<const float> x) const;
  [[nodiscard]] std::int64_t out() const { return out_; }

 private:
  std::int64_t out_;
  std::int64_t in_;
  Floats weights_;  ///< [experts, out, in]
  Buffer codes_;
  Buffer scales_;
  Buffer biases_;
};

[[nodiscard]] std::vector<const metal::GpuBuffer*> join(
    std::initializer_list<std::vector<const metal::GpuBuffer*>> lists);

/// x / rms(x) * gain
[[nodiscard]] Floats normed(std::span<const float> x, std::span<const float> gain, float eps);
[[nodiscard]] inline float sigmoid(float x) {
  return 1.0F / (1.0F + std::exp(-x));
}
[[nodiscard]] inline float silu(float x) {
  return x * sigmoid(x);
}

}  // namespace lily::testing
