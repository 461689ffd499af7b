// Starting kernels, and remembering the first error until the step asks for it.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/kernels.h"

namespace lily::cuda {

/// Shared memory beyond 48 KB must be asked for once a kernel.
template <class... Params>
void allow_shared(void (*kernel)(Params...), std::size_t bytes) {
  note_error(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
             "cudaFuncSetAttribute");
}

/// `overlapped`: the kernel begins with wait_for_previous() and may start before its predecessor has ended.
template <class... Params>
void launch(const Launch& where, bool overlapped, void (*kernel)(Params...), dim3 grid, unsigned threads,
            std::size_t shared, const Params&... args) {
#ifdef LILY_CUDA_EMULATED
  (void)where;
  (void)overlapped;
  emulator::run(grid, threads, shared, [&] { kernel(args...); });
#else
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
  note_error(cudaLaunchKernelEx(&config, kernel, args...), "kernel launch");
#endif
}

}  // namespace lily::cuda
