// Stands in for the Metal backend, real and emulated, in a build without it.
#include "backend/backend.h"

namespace lily {

bool has_metal_backend(std::string_view /*name*/) {
  return false;
}

Result<std::unique_ptr<Backend>> make_metal_backend(const BackendOptions& options,
                                                    const ModelWeights& /*weights*/,
                                                    const BackendLimits& /*limits*/) {
  return fail(ErrorCode::kUnsupported, "backend '{}' is not in this build", options.name);
}

}  // namespace lily
