// As much of CUDA as the kernels and their host use, on the CPU: every thread of a block is a fiber, so
// barriers, shuffles and matrix instructions work, and the kernels themselves are tested where there is no
// card. Device memory is host memory; streams run at once.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>

#define __host__
#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)
#define __CUDACC__ 1

struct float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}

namespace lily::cuda::emulator {

extern dim3 thread_index, block_index, block_size, grid_size;

/// Runs `body` once for every thread of every block.
void run(dim3 grid, unsigned threads, std::size_t shared, const std::function<void()>& body);
void block_barrier();
/// The warp's values of one collective operation, valid until this thread's next one.
struct WarpValues {
  std::uint64_t lane[32][4];
};
const WarpValues& exchange(const std::uint64_t (&mine)[4]);
std::uint8_t* dynamic_shared();
inline unsigned lane_index() {
  return thread_index.x & 31U;
}

template <class T>
T shuffle(T v, unsigned from) {
  static_assert(sizeof(T) <= 8);
  std::uint64_t mine[4] = {};
  std::memcpy(mine, &v, sizeof(T));
  const WarpValues& all = exchange(mine);
  T out;
  std::memcpy(&out, all.lane[from & 31U], sizeof(T));
  return out;
}

}  // namespace lily::cuda::emulator

#define threadIdx (lily::cuda::emulator::thread_index)
#define blockIdx (lily::cuda::emulator::block_index)
#define blockDim (lily::cuda::emulator::block_size)
#define gridDim (lily::cuda::emulator::grid_size)

inline void __syncthreads() {
  lily::cuda::emulator::block_barrier();
}
inline void __syncwarp() {
  lily::cuda::emulator::shuffle(0, 0);
}
template <class T>
T __shfl_xor_sync(unsigned, T v, int mask) {
  return lily::cuda::emulator::shuffle(v, lily::cuda::emulator::lane_index() ^ static_cast<unsigned>(mask));
}
template <class T>
T __shfl_sync(unsigned, T v, int from) {
  return lily::cuda::emulator::shuffle(v, static_cast<unsigned>(from));
}
inline unsigned __reduce_max_sync(unsigned, unsigned v) {
  for (unsigned d = 16; d > 0; d /= 2) v = std::max(v, __shfl_xor_sync(0, v, static_cast<int>(d)));
  return v;
}
inline unsigned __reduce_min_sync(unsigned, unsigned v) {
  for (unsigned d = 16; d > 0; d /= 2) v = std::min(v, __shfl_xor_sync(0, v, static_cast<int>(d)));
  return v;
}
inline int __reduce_add_sync(unsigned, int v) {
  for (unsigned d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0, v, static_cast<int>(d));
  return v;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
inline float __uint_as_float(unsigned v) {
  return std::bit_cast<float>(v);
}
inline unsigned __float_as_uint(float v) {
  return std::bit_cast<unsigned>(v);
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline int __dp4a(int a, int b, int c) {
  for (int shift = 0; shift < 32; shift += 8)
    c += static_cast<std::int8_t>(a >> shift) * static_cast<std::int8_t>(b >> shift);
  return c;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fsub_rn(float a, float b) {
  return a - b;
}
inline float __expf(float x) {
  return std::exp(x);
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline float rsqrtf(float x) {
  return 1.0F / std::sqrt(x);
}
inline int atomicAdd(int* p, int v) {
  const int old = *p;
  *p += v;
  return old;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned order) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(b) << 32 | a;
  unsigned out = 0;
  for (unsigned i = 0; i < 4; ++i)
    out |= static_cast<unsigned>(bytes >> (8 * (order >> (4 * i) & 7U)) & 255U) << (8 * i);
  return out;
}
using std::max;
using std::min;

// ---- the host's side

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNoDevice = 100,
  cudaErrorNotSupported = 801
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
using cudaStream_t = struct EmulatedStream*;
using cudaEvent_t = struct EmulatedEvent*;
using cudaGraph_t = struct EmulatedGraph*;
using cudaGraphExec_t = struct EmulatedGraphExec*;
inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDisableTiming = 2;
struct cudaDeviceProp {
  char name[256];
  int major, minor, multiProcessorCount;
  std::size_t sharedMemPerBlockOptin, totalGlobalMem;
};
inline const char* cudaGetErrorString(cudaError_t) {
  return "emulated error";
}
inline cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceCount(int* n) {
  *n = 1;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  std::strcpy(p->name, "emulated");
  p->major = 8;
  p->minor = 0;
  p->multiProcessorCount = 4;
  p->sharedMemPerBlockOptin = 227 * 1024;
  p->totalGlobalMem = std::size_t{1} << 33;
  return cudaSuccess;
}
inline cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total) {
  *free_bytes = *total = std::size_t{1} << 33;
  return cudaSuccess;
}
inline cudaError_t cudaMalloc(void** p, std::size_t n) {
  *p = std::aligned_alloc(256, (n + 255) / 256 * 256);
  if (*p != nullptr) std::memset(*p, 0xff, n);  // NaN: what is read before it is written shows
  return *p != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
inline cudaError_t cudaFree(void* p) {
  std::free(p);
  return cudaSuccess;
}
inline cudaError_t cudaMallocHost(void** p, std::size_t n) {
  return cudaMalloc(p, n);
}
inline cudaError_t cudaFreeHost(void* p) {
  return cudaFree(p);
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t n, cudaMemcpyKind, cudaStream_t) {
  std::memcpy(to, from, n);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* p, int v, std::size_t n, cudaStream_t) {
  std::memset(p, v, n);
  return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) {
  *s = nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t) {
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return cudaSuccess;
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) {
  *e = nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t) {
  return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return cudaSuccess;
}
inline cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  return cudaErrorNotSupported;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) {
  return cudaErrorNotSupported;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long) {
  return cudaErrorNotSupported;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) {
  return cudaErrorNotSupported;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t) {
  return cudaSuccess;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) {
  return cudaSuccess;
}
