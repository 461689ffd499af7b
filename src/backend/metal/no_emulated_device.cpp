// Stands in for emulated_device.cpp where the build could not compile the kernels for the CPU.
#include "backend/metal/gpu_device.h"

namespace lily::metal {

bool has_emulated_device() {
  return false;
}

Result<std::unique_ptr<GpuDevice>> make_emulated_device() {
  return fail(
      ErrorCode::kUnsupported,
      "backend 'metal-emulated' is not in this build: it needs Linux on x86-64 and clang 17 or later");
}

}  // namespace lily::metal
