// Running a kernel of the tests on an emulated device.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "backend/metal/emulated_device.h"

namespace lily::testing {

/// A buffer that holds `values`.
template <class T>
[[nodiscard]] std::unique_ptr<metal::GpuBuffer> buffer_of(metal::GpuDevice& device,
                                                          const std::vector<T>& values) {
  auto buffer = std::move(device.allocate(values.size() * sizeof(T), "a test")).value();
  std::memcpy(buffer->contents(), values.data(), buffer->size());
  return buffer;
}

template <class T>
[[nodiscard]] std::vector<T> values_of(const metal::GpuBuffer& buffer) {
  std::vector<T> values(buffer.size() / sizeof(T));
  std::memcpy(values.data(), buffer.contents(), buffer.size());
  return values;
}

struct KernelCall {
  std::string kernel;
  std::vector<metal::FunctionConstant> constants = {};
  std::vector<const metal::GpuBuffer*> buffers = {};  ///< by index
  metal::Extents groups = {};
  metal::Extents threads = {};
  std::size_t threadgroup_bytes = 0;  ///< of threadgroup(0)
};

/// That one dispatch, and what the device says of it.
[[nodiscard]] inline Result<void> run(metal::GpuDevice& device, const KernelCall& call) {
  LILY_TRY(const auto pipeline, device.pipeline(call.kernel, call.constants));
  const auto list = device.begin();
  list->set_pipeline(*pipeline);
  for (unsigned i = 0; i < call.buffers.size(); ++i) list->set_buffer(i, *call.buffers[i]);
  if (call.threadgroup_bytes > 0) list->set_threadgroup_memory(0, call.threadgroup_bytes);
  list->dispatch(call.groups, call.threads);
  list->submit();
  return list->wait();
}

}  // namespace lily::testing
