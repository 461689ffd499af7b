// What the tests without a Mac run the backend's kernels on: small models whose steps together reach every
// kernel and every barrier of theirs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backend/metal/gpu_device.h"

namespace lily::testing {

struct KernelCase {
  std::string name;
  /// All logits of its steps on that device, or the first error that it reports.
  std::function<Result<std::vector<float>>(std::unique_ptr<metal::GpuDevice>)> run;
};

[[nodiscard]] std::vector<KernelCase> kernel_cases();

}  // namespace lily::testing
