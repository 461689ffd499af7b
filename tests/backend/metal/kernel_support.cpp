#include "tests/backend/metal/kernel_support.h"

#include <algorithm>

#include "base/bf16.h"
#ifdef LILY_RACE_CHECKED
#include "tests/backend/metal/race_checker.h"
#endif

namespace lily::testing {

metal::EmulatedDevice& kernel_device() {
#ifdef LILY_RACE_CHECKED
  static metal::EmulatedDevice device({.executor = {.observer = &race_checker()}});
#else
  static metal::EmulatedDevice device({.executor = {.random_order = true}});
#endif
  return device;
}

void expect_run(const std::string& kernel, std::vector<const metal::GpuBuffer*> buffers, const Shape& shape,
                bool small_groups) {
  const auto status = run(kernel_device(), {.kernel = kernel,
                                            .constants = {{metal::kSmallGroupsConstant, small_groups}},
                                            .buffers = std::move(buffers),
                                            .groups = shape.groups,
                                            .threads = {.x = shape.threads, .y = 1, .z = 1}});
  EXPECT_TRUE(status.ok()) << kernel << ": " << (status.ok() ? "" : status.error().message);
}

double largest_error(const Floats& got, const Floats& expected) {
  if (got.size() != expected.size()) return std::numeric_limits<double>::quiet_NaN();
  double largest = 0;
  double size = 1e-30;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - expected[i]);
    if (!(error <= largest)) largest = error;  // NaN stays
    size = std::max(size, std::abs(static_cast<double>(expected[i])));
    if (std::isnan(error)) break;
  }
  return largest / size;
}

std::vector<std::uint16_t> to_bf16(const Floats& values) {
  std::vector<std::uint16_t> out(values.size());
  std::ranges::transform(values, out.begin(), f32_to_bf16);
  return out;
}
Floats from_bf16(const std::vector<std::uint16_t>& values) {
  Floats out(values.size());
  std::ranges::transform(values, out.begin(), bf16_to_f32);
  return out;
}
std::vector<_Float16> to_half(const Floats& values) {
  std::vector<_Float16> out;
  for (const float x : values) out.push_back(static_cast<_Float16>(x));
  return out;
}
Floats from_half(const std::vector<_Float16>& values) {
  return {values.begin(), values.end()};
}

MatrixCase::MatrixCase(std::int64_t experts, std::int64_t out, std::int64_t in, int bits, std::uint32_t seed,
                       int group_size)
    : out_(out), in_(in) {
  const RandomMatrix matrix(experts, out, in, bits, seed, 1.0F, group_size);
  const QuantizedMatrix m = matrix.view();
  const auto bytes = [](const std::byte* from, std::int64_t count) {
    return upload(std::vector<std::byte>(from, from + count));
  };
  codes_ = bytes(m.weight, experts * out * m.row_bytes());
  scales_ = bytes(m.scales, experts * out * m.groups() * 2);
  biases_ = bytes(m.biases, experts * out * m.groups() * 2);
  for (std::int64_t e = 0; e < experts; ++e) {
    for (std::int64_t r = 0; r < out; ++r) {
      const Floats row = matrix.row(e, r);
      weights_.insert(weights_.end(), row.begin(), row.end());
    }
  }
}

std::vector<const metal::GpuBuffer*> MatrixCase::buffers() const {
  return {codes_.get(), scales_.get(), biases_.get()};
}

float MatrixCase::dot(std::int64_t expert, std::int64_t row, std::span<const float> x) const {
  const float* w = weights_.data() + (expert * out_ + row) * in_;
  double sum = 0;
  for (std::int64_t i = 0; i < in_; ++i) sum += static_cast<double>(w[i]) * x[static_cast<std::size_t>(i)];
  return static_cast<float>(sum);
}

std::vector<const metal::GpuBuffer*> join(std::initializer_list<std::vector<const metal::GpuBuffer*>> lists) {
  std::vector<const metal::GpuBuffer*> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

Floats normed(std::span<const float> x, std::span<const float> gain, float eps) {
  double square = 0;
  for (const float v : x) square += static_cast<double>(v) * v;
  const auto inverse = static_cast<float>(1.0 / std::sqrt(square / static_cast<double>(x.size()) + eps));
  Floats y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * inverse * gain[i];
  return y;
}

}  // namespace lily::testing
