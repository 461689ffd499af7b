// Starting kernels, and remembering the first error until the step asks for it.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/kernels.h"

namespace lily::cuda {

#ifndef LILY_CUDA_EMULATED
/// Once a kernel: as much dynamic shared memory as the card has.
template <auto kKernel>
bool prepare(const Device& device) {
  const void* kernel = reinterpret_cast<const void*>(kKernel);
  cudaFuncAttributes attributes{};
  note_error(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  const int dynamic = device.shared_bytes - static_cast<int>(attributes.sharedSizeBytes);
  note_error(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, dynamic),
             "cudaFuncSetAttribute");
  return true;
}
#endif

/// `overlapped`: the kernel begins with wait_for_previous() and may start before its predecessor has ended.
template <auto kKernel, class... Args>
void launch(const Launch& where, bool overlapped, dim3 grid, unsigned threads, std::size_t shared,
            const Args&... args) {
#ifdef LILY_CUDA_EMULATED
  (void)where;
  (void)overlapped;
  emulator::run(grid, threads, shared, [&] { kKernel(args...); });
#else
  static const bool prepared = prepare<kKernel>(*where.device);
  (void)prepared;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared;
  config.stream = where.stream;
  config.attrs = &attribute;
  config.numAttrs = overlapped && where.device->overlap ? 1 : 0;
  note_error(cudaLaunchKernelEx(&config, kKernel, args...), "kernel launch");
#endif
}

}  // namespace lily::cuda
