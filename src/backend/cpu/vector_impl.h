// Vectors of kLanes numbers, in the compiler's vector extension: what the kernels' f32 parts are written in.
//
// Included once by each kernels_<isa>.cpp after kLanes is defined. Everything is in an unnamed namespace, so
// that code compiled for one instruction set can never be linked in place of another's; for the same reason
// the standard library's templates and the project's inline functions stay out of these files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>  // integer_sequence: a type only

#define LILY_INLINE inline __attribute__((always_inline))

namespace lily::cpu {
namespace {

typedef float F32 __attribute__((vector_size(4 * kLanes)));
typedef std::int32_t I32 __attribute__((vector_size(4 * kLanes)));
typedef std::uint32_t U32 __attribute__((vector_size(4 * kLanes)));
typedef std::uint16_t U16 __attribute__((vector_size(2 * kLanes)));
typedef std::uint8_t U8 __attribute__((vector_size(kLanes)));
using Lanes = std::make_integer_sequence<int, kLanes>;

template <class V>
LILY_INLINE V load(const void* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof(V));
  return v;
}
template <class V>
LILY_INLINE void store(void* p, V v) {
  __builtin_memcpy(p, &v, sizeof(V));
}
LILY_INLINE F32 load_f32(const float* p) {
  return load<F32>(p);
}
LILY_INLINE F32 splat(float x) {
  return x - F32{};  // not 0 + x, which is not x when x is -0
}
LILY_INLINE float sqrt_f32(float x) {
  return __builtin_sqrtf(x);
}

LILY_INLINE F32 as_f32(I32 x) {
  return reinterpret_cast<F32>(x);
}
LILY_INLINE F32 as_f32(U32 x) {
  return reinterpret_cast<F32>(x);
}
LILY_INLINE U32 as_u32(F32 x) {
  return reinterpret_cast<U32>(x);
}
LILY_INLINE I32 as_i32(F32 x) {
  return reinterpret_cast<I32>(x);
}

/// For numbers below 2^31.
LILY_INLINE F32 to_f32(U32 x) {
  return __builtin_convertvector(reinterpret_cast<I32>(x), F32);
}

LILY_INLINE F32 max(F32 a, F32 b) {
  return a > b ? a : b;
}

template <int... L>
LILY_INLINE I32 iota_of(std::integer_sequence<int, L...>) {
  return I32{L...};
}
LILY_INLINE I32 iota() {
  return iota_of(Lanes{});
}

template <int kDistance, int... L>
LILY_INLINE F32 exchange(F32 v, std::integer_sequence<int, L...>) {
  return __builtin_shufflevector(v, v, (L ^ kDistance)...);
}
template <int kDistance = kLanes / 2>
LILY_INLINE float reduce_add(F32 v) {
  v += exchange<kDistance>(v, Lanes{});
  if constexpr (kDistance > 1) return reduce_add<kDistance / 2>(v);
  return v[0];
}
template <int kDistance = kLanes / 2>
LILY_INLINE float reduce_max(F32 v) {
  v = max(v, exchange<kDistance>(v, Lanes{}));
  if constexpr (kDistance > 1) return reduce_max<kDistance / 2>(v);
  return v[0];
}

// One step of a transposition of blocks of 2 kDistance: exchanges the upper part of `a` with the lower part
// of `b`.
template <class V, int kDistance, int... L>
LILY_INLINE void transpose_step(V& a, V& b, std::integer_sequence<int, L...>) {
  const V low = __builtin_shufflevector(a, b, ((L & kDistance) != 0 ? kLanes + L - kDistance : L)...);
  const V high = __builtin_shufflevector(a, b, ((L & kDistance) != 0 ? kLanes + L : L + kDistance)...);
  a = low;
  b = high;
}
/// Transposes the kSize x kSize blocks that lie side by side in the kSize vectors.
template <int kSize, class V, int kDistance = kSize / 2>
LILY_INLINE void transpose(V (&v)[kSize]) {
  for (int i = 0; i < kSize; ++i) {
    if ((i & kDistance) == 0) transpose_step<V, kDistance>(v[i], v[i + kDistance], Lanes{});
  }
  if constexpr (kDistance > 1) transpose<kSize, V, kDistance / 2>(v);
}

template <int kOffset, int... L>
LILY_INLINE F32 interleave(F32 even, F32 odd, std::integer_sequence<int, L...>) {
  return __builtin_shufflevector(even, odd, ((L & 1) * kLanes + (L + kOffset) / 2)...);
}

LILY_INLINE float bf16_at(const std::byte* p) {
  std::uint16_t bits;
  __builtin_memcpy(&bits, p, sizeof(bits));
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
}
LILY_INLINE F32 load_bf16(const void* p) {
  return as_f32(__builtin_convertvector(load<U16>(p), U32) << 16);
}
/// Round to nearest, ties to even; NaN stays NaN.
LILY_INLINE U16 to_bf16(F32 x) {
  const U32 bits = as_u32(x);
  const U32 rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const U32 nan = (bits >> 16) | 0x40U;
  return __builtin_convertvector((bits & 0x7fffffffU) > 0x7f800000U ? nan : rounded, U16);
}

/// e^x within 2 ulp; 0 below -87.3, NaN stays NaN. x = n ln 2 + r with |r| <= ln 2 / 2, and a polynomial in
/// r.
LILY_INLINE F32 exp(F32 x) {
  constexpr float kLowest = -87.3F;
  constexpr float kHighest = 88.3F;
  constexpr float kToInteger = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  F32 t = x < kLowest ? splat(kLowest) : x;
  t = t > kHighest ? splat(kHighest) : t;
  const F32 shifted = t * 1.44269504088896341F + kToInteger;
  const F32 n = shifted - kToInteger;
  const F32 r = t - n * 0.693359375F + n * 2.12194440e-4F;  // ln 2 in two parts
  F32 p = splat(1.9875691500e-4F);
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  const I32 exponent = (as_i32(shifted) - 0x4b400000 + 127) << 23;
  const F32 y = p * as_f32(exponent);
  return x < kLowest ? splat(0.0F) : y;
}
LILY_INLINE F32 sigmoid(F32 x) {
  return 1.0F / (1.0F + exp(-x));
}
LILY_INLINE F32 silu(F32 x) {
  return x * sigmoid(x);
}
LILY_INLINE float exp(float x) {
  return exp(splat(x))[0];
}

/// sum(x[i] * y[i]) over n, a multiple of 4 kLanes.
LILY_INLINE float dot(const float* x, const float* y, std::int64_t n) {
  F32 sum[4] = {};
  for (std::int64_t i = 0; i < n; i += 4 * kLanes) {
    for (int j = 0; j < 4; ++j) sum[j] += load_f32(x + i + j * kLanes) * load_f32(y + i + j * kLanes);
  }
  return reduce_add((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

}  // namespace
}  // namespace lily::cpu
