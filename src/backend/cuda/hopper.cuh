// Hopper's own: barriers that count bytes, copies that arrive at them, and what surrounds wgmma.
#pragma once

#include <cstdint>

namespace lily::cuda::hopper {

__device__ __forceinline__ void init_barrier(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
__device__ __forceinline__ void arrive_and_expect(std::uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Arrives once this thread's copy_async16()s so far are done.
__device__ __forceinline__ void arrive_after_copies(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void wait(std::uint32_t barrier, int parity) {
  asm volatile(
      "{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n@p bra DONE;\nbra "
      "AGAIN;\nDONE:\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void bulk_copy(std::uint32_t shared, const void* global, int bytes,
                                          std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
      "l"(global), "r"(bytes), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void copy16(std::uint32_t shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}
/// The same; zeros where `valid` is false.
__device__ __forceinline__ void copy16_if(bool valid, std::uint32_t shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ uint4 read16(std::uint32_t shared) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(shared));
  return v;
}
__device__ __forceinline__ uint2 read8(std::uint32_t shared) {
  uint2 v;
  asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(shared));
  return v;
}
__device__ __forceinline__ std::uint32_t read4(std::uint32_t shared) {
  std::uint32_t v;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(shared) : "memory");
  return v;
}
__device__ __forceinline__ void write4(std::uint32_t shared, std::uint32_t v) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared), "r"(v) : "memory");
}
__device__ __forceinline__ void write16(std::uint32_t shared, int a, int b, int c, int d) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(shared), "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
/// A wgmma operand in shared memory: rows of 64 elements with the 128-byte swizzle (row r, chunk i of 16
/// bytes lies at chunk i ^ (r % 8)), groups of 8 rows 1,024 bytes apart. `blocks`: bytes from 64 elements to
/// the next 64, which matters only where rows are the products' inputs.
__device__ __forceinline__ std::uint64_t swizzled_descriptor(std::uint32_t shared, int blocks = 16) {
  return static_cast<std::uint64_t>((shared & 0x3FFFFU) >> 4) |
         static_cast<std::uint64_t>(blocks >> 4) << 16 | std::uint64_t{64} << 32 | std::uint64_t{1} << 62;
}

}  // namespace lily::cuda::hopper
