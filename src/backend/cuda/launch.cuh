// Starting kernels, and remembering the first error until the step asks for it.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/kernels.h"

namespace lily::cuda {

#ifndef LILY_CUDA_EMULATED
/// Shared memory's part of what it shares with the L1, of kernels that overlap: blocks of different parts do
/// not run side by side, and a spread() one must find room beside one of another kernel.
inline constexpr int kSharedPercent = 72;

/// Once a kernel: as much dynamic shared memory as the card has.
template <auto kKernel>
bool prepare(const Device& device, bool overlapped) {
  const void* kernel = reinterpret_cast<const void*>(kKernel);
  cudaFuncAttributes attributes{};
  note_error(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  const int dynamic = device.shared_bytes - static_cast<int>(attributes.sharedSizeBytes);
  note_error(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, dynamic),
             "cudaFuncSetAttribute");
  if (overlapped) {
    note_error(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, kSharedPercent),
               "cudaFuncSetAttribute");
  }
  return true;
}
#endif

/// For a grid of no more blocks than multiprocessors, so much shared memory that no two of them share one,
/// though blocks of the kernel before may be there still: those that share would be the last to end.
inline std::size_t spread(const Launch& where, dim3 grid, std::size_t shared) {
  const std::int64_t blocks = static_cast<std::int64_t>(grid.x) * grid.y * grid.z;
  const auto half = static_cast<std::size_t>(where.device->shared_bytes / 2);
  return blocks > where.device->multiprocessors || shared > half ? shared : half;
}

/// `overlapped`: the kernel begins with wait_for_previous() and may start before its predecessor has ended.
template <auto kKernel, class... Args>
void launch(const Launch& where, bool overlapped, dim3 grid, unsigned threads, std::size_t shared,
            const Args&... args) {
#ifdef LILY_CUDA_EMULATED
  (void)where;
  (void)overlapped;
  emulator::run(grid, threads, shared, [&] { kKernel(args...); });
#else
  static const bool prepared = prepare<kKernel>(*where.device, overlapped);
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
