// Kernels with one bug each, and their correct siblings. 4 groups of 128 threads; in: 128 floats, out: 512.
#include <metal_stdlib>
using namespace metal;

#define BUG(name)                                                                                       \
  kernel void name(device float* out [[buffer(0)]], device const float* in [[buffer(1)]],               \
                   uint tid [[thread_position_in_threadgroup]], uint lane [[thread_index_in_simdgroup]], \
                   uint group [[threadgroup_position_in_grid]])

BUG(correct) {
  threadgroup float t[128];
  t[tid] = in[tid];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[group * 128 + tid] = t[127 - tid];
}

BUG(missing_barrier) {
  threadgroup float t[128];
  t[tid] = in[tid];
  out[group * 128 + tid] = t[127 - tid];
}

BUG(wrong_flags) {
  threadgroup float t[128];
  t[tid] = in[tid];
  threadgroup_barrier(mem_flags::mem_device);
  out[group * 128 + tid] = t[127 - tid];
}

BUG(device_flags) {
  out[group * 128 + tid] = in[tid];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (tid == 0) out[group * 128] += out[group * 128 + 127];
}

BUG(device_flags_correct) {
  out[group * 128 + tid] = in[tid];
  threadgroup_barrier(mem_flags::mem_device);
  if (tid == 0) out[group * 128] += out[group * 128 + 127];
}

BUG(write_after_read) {
  threadgroup float t[128];
  float sum = 0.0f;
  for (uint i = 0; i < 4; i++) {
    t[tid] = in[tid] + float(i);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum += t[127 - tid];
  }
  out[group * 128 + tid] = sum;
}

BUG(write_after_read_correct) {
  threadgroup float t[128];
  float sum = 0.0f;
  for (uint i = 0; i < 4; i++) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    t[tid] = in[tid] + float(i);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum += t[127 - tid];
  }
  out[group * 128 + tid] = sum;
}

BUG(simd_missing_barrier) {
  threadgroup float t[128];
  t[tid] = in[tid];
  out[group * 128 + tid] = t[tid ^ 1];
}

BUG(simd_barrier_correct) {
  threadgroup float t[128];
  t[tid] = in[tid];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  out[group * 128 + tid] = t[tid ^ 1];
}

BUG(simd_barrier_too_weak) {
  threadgroup float t[128];
  t[tid] = in[tid];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  out[group * 128 + tid] = t[tid ^ 32];
}

BUG(two_simd_groups_read) {
  threadgroup float t[128];
  if (tid < 32) t[tid] = in[tid];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float v = t[lane];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  if (tid < 32) t[31 - tid] = v;
  out[group * 128 + tid] = v;
}

BUG(read_past_the_end) { out[group * 128 + tid] = in[tid + 1]; }

BUG(write_past_the_end) { out[group * 128 + tid + 1] = in[tid]; }

BUG(read_before_the_start) { out[group * 128 + tid] = in[int(tid) - 1]; }

BUG(past_a_threadgroup_array) {
  threadgroup float t[127];
  t[tid] = in[tid];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[group * 128 + tid] = t[tid];
}

BUG(divergent_barrier) {
  threadgroup float t[128];
  t[tid] = in[tid];
  if (tid < 64) threadgroup_barrier(mem_flags::mem_threadgroup);
  out[group * 128 + tid] = t[tid];
}

BUG(two_barriers) {
  threadgroup float t[128];
  t[tid] = in[tid];
  if (tid < 64)
    threadgroup_barrier(mem_flags::mem_threadgroup);
  else
    threadgroup_barrier(mem_flags::mem_threadgroup);
  out[group * 128 + tid] = t[tid];
}

BUG(early_return) {
  threadgroup float t[128];
  if (tid >= 100) return;
  t[tid] = in[tid];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[group * 128 + tid] = t[tid];
}

BUG(divergent_simd_sum) {
  float v = in[tid];
  if (lane < 20) v = simd_sum(v);
  out[group * 128 + tid] = v;
}

BUG(simd_sum_after_return) {
  float v = in[tid];
  if (lane == 31) return;
  out[group * 128 + tid] = simd_sum(v);
}

BUG(sum_across_groups) {
  if (tid == 0) out[0] += in[group];
}

BUG(uninitialised_threadgroup) {
  threadgroup float t[128];
  if (tid < 64) t[tid] = in[tid];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[group * 128 + tid] = t[tid];
}

BUG(uninitialised_thread) {
  float a[4];
  a[0] = in[tid];
  out[group * 128 + tid] = a[tid & 1];
}

BUG(misaligned) {
  if (tid < 16) {
    const float4 v = *(device const float4*)(in + tid);
    out[group * 128 + tid] = v.x;
  }
}

BUG(writes_what_is_constant) { ((device float*)in)[tid] = out[group * 128 + tid]; }
