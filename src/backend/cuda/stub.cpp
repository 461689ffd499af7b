// Stands in for the CUDA backend in a build without it.
#include "backend/backend.h"

namespace lily {

bool has_cuda_backend() {
  return false;
}

Result<std::unique_ptr<Backend>> make_cuda_backend(const BackendOptions& /*options*/,
                                                   const ModelWeights& /*weights*/,
                                                   const BackendLimits& /*limits*/) {
  return fail(ErrorCode::kUnsupported, "backend 'cuda' is not in this build");
}

}  // namespace lily
