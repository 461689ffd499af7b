// One result form of the Hopper product a file: ptxas takes its time over each.
#include "backend/cuda/hopper_gemm.cuh"

namespace lily::cuda {

bool hopper_gemm_takes(const Device& device, const Packed& matrix) {
  return device.hopper && matrix.steps() % hopper::kProducerWarps == 0;
}

void hopper_gemm_store(const Launch& where, const GemmArgs& a) {
  hopper::launch_gemm<GemmOut::kStore>(where, a);
}

}  // namespace lily::cuda
