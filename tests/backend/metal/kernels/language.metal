// The surface of the language that kernels use, each answer known.
#include <metal_stdlib>
using namespace metal;

#include "language.h"

constant uint FC_count [[function_constant(1)]];
constant uint FC_twice = FC_count * 2;
constant bool FC_option [[function_constant(7)]];
constant float kTable[4] = {1.0f, 10.0f, 100.0f, 1000.0f};

struct Block {
  half scale;
  uchar codes[16];
  float at(uint i) const device { return float(scale) * float((codes[i / 2] >> (4 * (i & 1))) & 0xF); }
};

kernel void vectors(device float* out [[buffer(0)]], device const packed_float3* packed [[buffer(1)]],
                    device const Block* block [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  if (i > 0) return;
  float3 v = float3(packed[1]);
  v.xy = v.yx;
  out[0] = v.x;
  out[1] = v.y;
  const float4 w = float4(v.xy, 7.0f, 8.0f);
  out[2] = dot(w, float4(1.0f));
  out[3] = block->at(3);
  out[4] = as_type<float>(as_type<uint>(2.5f));
  const ushort4 bits = as_type<ushort4>(half4(float4(1.0f)));
  out[5] = float(bits.w);
  out[6] = clamp(5.0f, 0.0f, 3.0f) + float(popcount(0xF0u)) + float(clz(1u));
  out[7] = kTable[2];
  out[8] = select(1.0f, 2.0f, v.x > 1e9f);
  out[9] = mix(1.0f, 3.0f, 0.5f) + saturate(2.0f);
}

kernel void constants(device float* out [[buffer(0)]], constant Parameters& p [[buffer(1)]]) {
  out[0] = float(FC_count);
  out[1] = float(FC_twice);
  out[2] = is_function_constant_defined(FC_option) ? 1.0f : 0.0f;
  out[3] = p.scale * float(p.count);
}

// Half and bfloat are rounded after each operation; subnormal floats are flushed, subnormal halves kept.
kernel void rounding(device float* out [[buffer(0)]], device const float* in [[buffer(1)]]) {
  const half one = half(in[0]);
  const half tiny = half(in[1]);
  out[0] = float((one + tiny) - one);
  out[1] = float(bfloat(in[2]));
  out[2] = float(bfloat(in[0]) + bfloat(in[3]));
  out[3] = in[4] * in[5];
  out[4] = in[4] + in[4];
  out[5] = float(half(in[6]));
  out[6] = float(half(in[6]) * half(in[7]));
  out[7] = in[0] * 0.1;
}

kernel void simd_functions(device float* out [[buffer(0)]], uint lane [[thread_index_in_simdgroup]],
                           uint i [[thread_index_in_threadgroup]]) {
  const float x = float(lane);
  device float* mine = out + i * 12;
  mine[0] = simd_sum(x);
  mine[1] = simd_max(x);
  mine[2] = simd_min(x + 1.0f);
  mine[3] = simd_shuffle_xor(x, 1);
  mine[4] = simd_shuffle_down(x, 2);
  mine[5] = float(simd_prefix_exclusive_sum(lane));
  mine[6] = simd_broadcast(x * 2.0f, 5);
  mine[7] = quad_sum(x);
  mine[8] = simd_any(lane == 3) ? 1.0f : 0.0f;
  mine[9] = simd_all(lane < 31) ? 1.0f : 0.0f;
  mine[10] = float(simd_or(1u << lane) == ~0u);
  mine[11] = simd_shuffle(x, ushort(31 - lane));
}

kernel void matrices(device float* out [[buffer(0)]], device const half* a [[buffer(1)]],
                     device const float* b [[buffer(2)]]) {
  simdgroup_half8x8 left;
  simdgroup_float8x8 right;
  simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
  simdgroup_load(left, a, 16, ulong2(8, 0));
  simdgroup_load(right, b, 8, ulong2(0, 0), true);
  simdgroup_multiply_accumulate(sum, left, right, sum);
  simdgroup_store(sum, out, 8);
}

kernel void atomics(device atomic_uint* counts [[buffer(0)]], device atomic_float* sum [[buffer(1)]],
                    uint i [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(&counts[i % 4], 1u, memory_order_relaxed);
  atomic_fetch_max_explicit(&counts[4], i, memory_order_relaxed);
  atomic_fetch_add_explicit(sum, 0.5f, memory_order_relaxed);
}

kernel void positions(device uint* out [[buffer(0)]], uint3 grid [[thread_position_in_grid]],
                      uint3 group [[threadgroup_position_in_grid]], uint3 size [[threads_per_threadgroup]],
                      uint3 all [[threads_per_grid]], uint index [[thread_index_in_threadgroup]],
                      ushort simd [[simdgroup_index_in_threadgroup]], uint simds [[simdgroups_per_threadgroup]]) {
  const uint at = (grid.z * all.y + grid.y) * all.x + grid.x;
  out[at] = index + 1000u * (group.x + 2u * group.y + 4u * group.z) + 100000u * uint(simd) + 1000000u * simds +
            10000000u * size.y;
}

kernel void dynamic_memory(device float* out [[buffer(0)]], threadgroup float* t [[threadgroup(0)]],
                           uint i [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
  t[i] = float(i);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = t[n - 1 - i];
}

kernel void copy(device float* to [[buffer(0)]], device const float* from [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {
  to[i] = from[i] + 1.0f;
}
