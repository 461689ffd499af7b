// What happens to rows at both ends of the model: embedding, and the choice of the likeliest token.
#include "functions.h"

template <int kBits>
[[kernel]] void embed(device const uint* codes [[buffer(0)]], device const bfloat* scales [[buffer(1)]],
                      device const bfloat* biases [[buffer(2)]], device const int* tokens [[buffer(3)]],
                      device float* residual [[buffer(4)]], constant EmbedArgs& a [[buffer(5)]],
                      uint2 at [[thread_position_in_grid]]) {
  constexpr int kCodes = 32 / kBits;  // of a word
  const int word = int(at.x);
  const int row = int(at.y);
  if (word * kCodes >= a.hidden) return;
  const ulong source = ulong(tokens[row]);
  const uint w = codes[source * ulong(a.hidden / kCodes) + ulong(word)];
  const ulong group = source * ulong(scales_of(a.hidden)) + ulong(word * kCodes / (FC_SMALL_GROUPS ? kGroup / 2 : kGroup));
  const float scale = float(scales[group]);
  const float bias = float(biases[group]);
  for (int i = 0; i < kCodes; ++i) {
    const float code = float((w >> uint(i * kBits)) & ((1u << uint(kBits)) - 1u));
    residual[ulong(row) * ulong(a.hidden) + ulong(word * kCodes + i)] = fma(scale, code, bias);
  }
}
template [[host_name("embed_q4")]] [[kernel]] decltype(embed<4>) embed<4>;
template [[host_name("embed_q8")]] [[kernel]] decltype(embed<8>) embed<8>;

/// A logit and its token; larger logits first, of equals the lower token. NaN is never chosen.
struct Choice {
  float value;
  int index;
};
inline bool is_better(float value, int index, float than_value, int than_index) {
  if (index < 0 || value != value) return false;
  return than_index < 0 || value > than_value || (value == than_value && index < than_index);
}
inline Choice best_of_simd(Choice c) {
  for (int step = 16; step > 0; step /= 2) {
    const float value = simd_shuffle_xor(c.value, ushort(step));
    const int index = simd_shuffle_xor(c.index, ushort(step));
    if (is_better(value, index, c.value, c.index)) {
      c.value = value;
      c.index = index;
    }
  }
  return c;
}

/// The best of a part of a row's logits. Grid (kArgmaxGroups, rows).
[[kernel]] void argmax_parts(device const float* logits [[buffer(0)]], device float* values [[buffer(1)]],
                             device int* indices [[buffer(2)]], constant ArgmaxArgs& a [[buffer(3)]],
                             uint2 tg [[threadgroup_position_in_grid]],
                             uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                             uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float best_values[kArgmaxThreads / kSimd];
  threadgroup int best_indices[kArgmaxThreads / kSimd];
  device const float* row = logits + ulong(tg.y) * ulong(a.stride);
  Choice c;
  c.value = kNothing;
  c.index = -1;
  for (int i = int(tg.x) * kArgmaxThreads + int(tid); i < a.limit; i += kArgmaxGroups * kArgmaxThreads) {
    const float value = row[i];
    if (is_better(value, i, c.value, c.index)) {
      c.value = value;
      c.index = i;
    }
  }
  c = best_of_simd(c);
  if (lane == 0) {
    best_values[simdgroup] = c.value;
    best_indices[simdgroup] = c.index;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simdgroup > 0) return;
  c.value = kNothing;
  c.index = -1;
  if (lane < uint(kArgmaxThreads / kSimd)) {
    c.value = best_values[lane];
    c.index = best_indices[lane];
  }
  c = best_of_simd(c);
  if (lane == 0) {
    values[tg.y * uint(kArgmaxGroups) + tg.x] = c.value;
    indices[tg.y * uint(kArgmaxGroups) + tg.x] = c.index;
  }
}

/// The best of the parts; -1 where no logit is a number. A SIMD-group a row.
[[kernel]] void argmax_join(device const float* values [[buffer(0)]], device const int* indices [[buffer(1)]],
                            device int* best [[buffer(2)]], uint row [[threadgroup_position_in_grid]],
                            uint lane [[thread_index_in_simdgroup]]) {
  static_assert(kArgmaxGroups == kSimd, "a part a lane");
  Choice c;
  c.value = values[row * uint(kArgmaxGroups) + lane];
  c.index = indices[row * uint(kArgmaxGroups) + lane];
  c = best_of_simd(c);
  if (lane == 0) best[row] = c.index;
}
