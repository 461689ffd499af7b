// Stands in for metal_device.mm where Apple's API is missing.
#include "backend/metal/gpu_device.h"

namespace lily::metal {

bool has_metal_device() {
  return false;
}

Result<std::unique_ptr<GpuDevice>> make_metal_device() {
  return fail(ErrorCode::kUnsupported, "backend 'metal' is in builds for macOS alone");
}

}  // namespace lily::metal
