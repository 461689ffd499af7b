// The instructions that CUDA C++ has no name for. The emulator has its own versions of these.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#ifdef LILY_CUDA_EMULATED
#include "backend/cuda/emulator/ptx.h"
#else

#define LILY_DYNAMIC_SHARED(name) extern __shared__ __align__(1024) std::uint8_t name[]

namespace lily::cuda {

// Programmatic dependent launch: until wait() only weights and what a step before the last kernel wrote may
// be read; let_next_start() lets the next kernel's blocks begin.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Weights: read once, past the L1.
__device__ __forceinline__ uint4 load_weights16(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}
__device__ __forceinline__ uint2 load_weights8(const void* p) {
  uint2 v;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}

__device__ __forceinline__ void prefetch_l2(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

// c += a b, unsigned codes [16 x 32] times signed digits [32 x 8].
__device__ __forceinline__ void mma_u8s8(int (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                         std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// c += a b, bf16 [16 x 16] times [16 x 8].
__device__ __forceinline__ void mma_bf16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                         std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// a * b + c on two bf16, subnormals kept.
__device__ __forceinline__ std::uint32_t fma_bf16x2(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}
__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

__device__ __forceinline__ float exp2_approximate(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}
// Four 8 x 8 matrices of 16-bit elements; lane i names row i % 8 of matrix i / 8.
__device__ __forceinline__ void load_matrices(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}
// 16 bytes to shared memory behind the thread's back; zeros where `valid` is false.
__device__ __forceinline__ void copy_async16(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Rows of activations on their way to a block's shared memory. On Hopper the copy engine brings them: what
// threads load returns in the order in which it was asked for, so that a load from the L2 would wait behind
// weights that come from DRAM. All threads call these; after init(), __syncthreads() before the first wait().
class BlockCopy {
 public:
  __device__ explicit BlockCopy(std::uint64_t* barrier) : barrier_(barrier) {}
#if __CUDA_ARCH__ >= 900
  __device__ __forceinline__ void init() {
    if (threadIdx.x != 0) return;
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(barrier_)) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  /// `bytes`, a multiple of 16, of all the pieces that wait() is to wait for; then the pieces.
  __device__ __forceinline__ void expect(int bytes) {
    if (threadIdx.x != 0) return;
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier_)),
                 "r"(bytes)
                 : "memory");
  }
  __device__ __forceinline__ void copy(void* shared, const void* global, int bytes) {
    if (threadIdx.x != 0) return;
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(shared)),
        "l"(global), "r"(bytes), "r"(shared_address(barrier_))
        : "memory");
  }
  __device__ __forceinline__ void wait() {
    asm volatile(
        "{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n@p bra DONE;\nbra "
        "AGAIN;\nDONE:\n}" ::"r"(shared_address(barrier_)),
        "r"(parity_)
        : "memory");
    parity_ ^= 1;
  }

 private:
  std::uint64_t* barrier_;
  int parity_ = 0;
#else
  __device__ __forceinline__ void init() {}
  __device__ __forceinline__ void expect(int) {}
  __device__ __forceinline__ void copy(void* shared, const void* global, int bytes) {
    for (int at = static_cast<int>(threadIdx.x) * 16; at < bytes; at += static_cast<int>(blockDim.x) * 16)
      copy_async16(static_cast<std::uint8_t*>(shared) + at, static_cast<const std::uint8_t*>(global) + at,
                   true);
    commit_copies();
  }
  __device__ __forceinline__ void wait() {
    wait_for_copies<0>();
    __syncthreads();
  }

 private:
  std::uint64_t* barrier_;
#endif
};

}  // namespace lily::cuda

#endif

namespace lily::cuda {

__device__ __forceinline__ float bf16_low(std::uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float bf16_high(std::uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000U);
}

/// Code `k` of a stream of codes of `bits`, lowest first, which ends with a whole byte.
__device__ __forceinline__ std::uint32_t code_at(const std::uint8_t* stream, int bits, int k) {
  const int at = k * bits;
  const std::uint8_t* byte = stream + (at >> 3);
  std::uint32_t word = byte[0];
  if ((at & 7) + bits > 8) word |= static_cast<std::uint32_t>(byte[1]) << 8;
  return word >> (at & 7) & ((1U << bits) - 1);
}

__device__ __forceinline__ float warp_sum(float v) {
  for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffU, v, d);
  return v;
}
__device__ __forceinline__ float sigmoid(float x) {
  return __fdividef(1.0F, 1.0F + __expf(-x));
}
__device__ __forceinline__ float silu(float x) {
  return x * sigmoid(x);
}

/// What follows is done twice, the first time for nothing: before the wait, so that its instructions are in
/// the cache when the inputs come. Straight code that is fetched as it runs takes four times as long.
inline constexpr int kInEarnest = 1;
#define LILY_REHEARSE(pass) _Pragma("unroll 1") for (int pass = 0; pass <= lily::cuda::kInEarnest; ++pass)

/// The sum of v over the block, to all threads. `scratch`: a float a warp.
__device__ __forceinline__ float block_sum(float v, float* scratch) {
  v = warp_sum(v);
  __syncthreads();
  if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = v;
  __syncthreads();
  float sum = 0;
  for (unsigned i = 0; i < blockDim.x / 32; ++i) sum += scratch[i];
  return sum;
}

}  // namespace lily::cuda
