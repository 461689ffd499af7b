// wgmma and bulk copies are not emulated: everything takes the mma.sync kernels.
#include <cstdlib>

#include "backend/cuda/kernels.h"
#include "backend/cuda/prefill_attention.cuh"

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
void hopper_attention(const Launch& /*where*/, const AttentionPrefillArgs& /*args*/, dim3 /*grid*/,
                      bool /*split*/) {
  std::abort();
}

}  // namespace lily::cuda
