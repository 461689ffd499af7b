// One result form of the Hopper product a file: ptxas takes its time over each.
#include "backend/cuda/hopper_gemm.cuh"

namespace lily::cuda {

void hopper_gemm_swiglu(const Launch& where, const GemmArgs& a) {
  hopper::launch_gemm<GemmOut::kSwiglu>(where, a);
}

}  // namespace lily::cuda
