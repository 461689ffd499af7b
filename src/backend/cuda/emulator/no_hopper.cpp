// wgmma and bulk copies are not emulated: every product takes the mma.sync kernels.
#include <cstdlib>

#include "backend/cuda/kernels.h"

namespace lily::cuda {

bool hopper_gemm_takes(const Device& /*device*/, const Packed& /*matrix*/) {
  return false;
}
void hopper_gemm_store(const Launch& /*where*/, const GemmArgs& /*args*/) {
  std::abort();
}
void hopper_gemm_add(const Launch& /*where*/, const GemmArgs& /*args*/) {
  std::abort();
}
void hopper_gemm_swiglu(const Launch& /*where*/, const GemmArgs& /*args*/) {
  std::abort();
}
void hopper_gemm_scaled(const Launch& /*where*/, const GemmArgs& /*args*/) {
  std::abort();
}

}  // namespace lily::cuda
