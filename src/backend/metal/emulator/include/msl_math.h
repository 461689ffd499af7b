// Scalar and componentwise functions. `fast::` and `precise::` are the same here: tolerances of tests have to
// leave room.
#pragma once
#pragma clang system_header
#include "msl_types.h"

namespace metal {

namespace detail {
template <class T>
constexpr constant bool is_float = is_same_v<T, float> || is_same_v<T, half> || is_same_v<T, bfloat>;
/// f of every component.
template <class T, class F>
MSL_FUNCTION T each(T a, F f) {
  if constexpr (shape<T>::is_vector) {
    T r;
    for (int i = 0; i < shape<T>::lanes; i++) {
      typename shape<T>::element x = a[i];
      r[i] = f(x);
    }
    return r;
  } else {
    return f(a);
  }
}
template <class T, class F>
MSL_FUNCTION T each(T a, T b, F f) {
  if constexpr (shape<T>::is_vector) {
    T r;
    for (int i = 0; i < shape<T>::lanes; i++) {
      typename shape<T>::element x = a[i], y = b[i];
      r[i] = f(x, y);
    }
    return r;
  } else {
    return f(a, b);
  }
}
template <class T, class F>
MSL_FUNCTION T each(T a, T b, T c, F f) {
  if constexpr (shape<T>::is_vector) {
    T r;
    for (int i = 0; i < shape<T>::lanes; i++) {
      typename shape<T>::element x = a[i], y = b[i], z = c[i];
      r[i] = f(x, y, z);
    }
    return r;
  } else {
    return f(a, b, c);
  }
}
}  // namespace detail

// Each operation is done in float and rounded once to the type.
#define MSL_UNARY(name, expression)                                                      \
  template <class T>                                                                     \
  MSL_FUNCTION T name(T value) {                                                         \
    using E = typename detail::shape<T>::element;                                        \
    static_assert(detail::is_float<E>, #name ": a floating-point argument is expected"); \
    return detail::each(value, [](E v) MSL_UNSEEN {                                      \
      const float x = float(v);                                                          \
      return E(expression);                                                              \
    });                                                                                  \
  }
#define MSL_BINARY(name, expression)                                                     \
  template <class T>                                                                     \
  MSL_FUNCTION T name(T left, T right) {                                                 \
    using E = typename detail::shape<T>::element;                                        \
    static_assert(detail::is_float<E>, #name ": floating-point arguments are expected"); \
    return detail::each(left, right, [](E v, E w) MSL_UNSEEN {                           \
      const float a = float(v), b = float(w);                                            \
      return E(expression);                                                              \
    });                                                                                  \
  }
#define MSL_FLOAT_FUNCTIONS                                  \
  MSL_UNARY(acos, __builtin_acosf(x))                        \
  MSL_UNARY(asin, __builtin_asinf(x))                        \
  MSL_UNARY(atan, __builtin_atanf(x))                        \
  MSL_UNARY(ceil, __builtin_ceilf(x))                        \
  MSL_UNARY(cos, __builtin_cosf(x))                          \
  MSL_UNARY(erf, __builtin_erff(x))                          \
  MSL_UNARY(exp, __builtin_expf(x))                          \
  MSL_UNARY(exp2, __builtin_exp2f(x))                        \
  MSL_UNARY(fabs, __builtin_fabsf(x))                        \
  MSL_UNARY(floor, __builtin_floorf(x))                      \
  MSL_UNARY(fract, x - __builtin_floorf(x))                  \
  MSL_UNARY(log, __builtin_logf(x))                          \
  MSL_UNARY(log10, __builtin_log10f(x))                      \
  MSL_UNARY(log2, __builtin_log2f(x))                        \
  MSL_UNARY(rint, __builtin_rintf(x))                        \
  MSL_UNARY(round, __builtin_roundf(x))                      \
  MSL_UNARY(rsqrt, 1.0f / __builtin_sqrtf(x))                \
  MSL_UNARY(saturate, x < 0.0f ? 0.0f : x > 1.0f ? 1.0f : x) \
  MSL_UNARY(sin, __builtin_sinf(x))                          \
  MSL_UNARY(sqrt, __builtin_sqrtf(x))                        \
  MSL_UNARY(tan, __builtin_tanf(x))                          \
  MSL_UNARY(tanh, __builtin_tanhf(x))                        \
  MSL_UNARY(trunc, __builtin_truncf(x))                      \
  MSL_BINARY(atan2, __builtin_atan2f(a, b))                  \
  MSL_BINARY(copysign, __builtin_copysignf(a, b))            \
  MSL_BINARY(fmax, __builtin_fmaxf(a, b))                    \
  MSL_BINARY(fmin, __builtin_fminf(a, b))                    \
  MSL_BINARY(fmod, __builtin_fmodf(a, b))                    \
  MSL_BINARY(pow, __builtin_powf(a, b))                      \
  MSL_BINARY(powr, __builtin_powf(a, b))                     \
  MSL_BINARY(step, b < a ? 0.0f : 1.0f)
MSL_FLOAT_FUNCTIONS

// Where one argument is NaN, Metal gives the other; here NaN wins, so that a maximum hides no poison.
template <class T>
MSL_FUNCTION T min(T a, T b) {
  using E = typename detail::shape<T>::element;
  return detail::each(a, b, [](E x, E y) MSL_UNSEEN { return y < x || y != y ? y : x; });
}
template <class T>
MSL_FUNCTION T max(T a, T b) {
  using E = typename detail::shape<T>::element;
  return detail::each(a, b, [](E x, E y) MSL_UNSEEN { return x < y || y != y ? y : x; });
}
template <class T>
MSL_FUNCTION T clamp(T x, T low, T high) {
  return min(max(x, low), high);
}
template <class T>
MSL_FUNCTION T abs(T a) {
  using E = typename detail::shape<T>::element;
  return detail::each(a, [](E x) MSL_UNSEEN { return x < E(0) ? E(-x) : x; });
}
template <class T>
MSL_FUNCTION T sign(T a) {
  using E = typename detail::shape<T>::element;
  return detail::each(a, [](E x) MSL_UNSEEN { return x > E(0) ? E(1) : x < E(0) ? E(-1) : E(0); });
}
template <class T>
MSL_FUNCTION T fma(T a, T b, T c) {
  using E = typename detail::shape<T>::element;
  return detail::each(
      a, b, c, [](E x, E y, E z) MSL_UNSEEN { return E(__builtin_fmaf(float(x), float(y), float(z))); });
}
template <class T>
MSL_FUNCTION T mad(T a, T b, T c) {
  return fma(a, b, c);
}
template <class T>
MSL_FUNCTION T mix(T a, T b, T t) {
  return a + (b - a) * t;
}
template <class T>
MSL_FUNCTION T select(T a, T b, bool second) {
  return second ? b : a;
}
template <class T, int N, class M>
MSL_FUNCTION vec<T, N> select(vec<T, N> a, vec<T, N> b, vec<M, N> second) {
  vec<T, N> r;
  for (int i = 0; i < N; i++) r[i] = second[i] ? b[i] : a[i];
  return r;
}
template <class M, int N>
MSL_FUNCTION bool any(vec<M, N> m) {
  bool r = false;
  for (int i = 0; i < N; i++) r = r || m[i];
  return r;
}
template <class M, int N>
MSL_FUNCTION bool all(vec<M, N> m) {
  bool r = true;
  for (int i = 0; i < N; i++) r = r && m[i];
  return r;
}
template <class T, int N>
MSL_FUNCTION T dot(vec<T, N> a, vec<T, N> b) {
  T sum = a[0] * b[0];
  for (int i = 1; i < N; i++) sum += a[i] * b[i];
  return sum;
}
template <class T, int N>
MSL_FUNCTION T length_squared(vec<T, N> a) {
  return dot(a, a);
}
template <class T, int N>
MSL_FUNCTION T length(vec<T, N> a) {
  return sqrt(dot(a, a));
}
template <class T>
MSL_FUNCTION bool isnan(T x) {
  return !(float(x) == float(x));
}
template <class T>
MSL_FUNCTION bool isinf(T x) {
  return __builtin_fabsf(float(x)) == __builtin_inff();
}
template <class T>
MSL_FUNCTION bool isfinite(T x) {
  return __builtin_fabsf(float(x)) < __builtin_inff();
}

MSL_FUNCTION uint popcount(uint x) {
  return __builtin_popcount(x);
}
MSL_FUNCTION uint clz(uint x) {
  return x ? __builtin_clz(x) : 32;
}
MSL_FUNCTION uint ctz(uint x) {
  return x ? __builtin_ctz(x) : 32;
}
MSL_FUNCTION uint reverse_bits(uint x) {
  return __builtin_bitreverse32(x);
}
MSL_FUNCTION uint mulhi(uint a, uint b) {
  return uint((ulong(a) * b) >> 32);
}
template <class T>
MSL_FUNCTION T extract_bits(T x, uint offset, uint bits) {
  return bits == 0 ? T(0) : bits >= 32 ? x >> offset : T((x >> offset) & T((T(1) << bits) - 1));
}

namespace fast {
MSL_FLOAT_FUNCTIONS
using metal::clamp;
using metal::fma;
using metal::max;
using metal::min;
}  // namespace fast
namespace precise {
MSL_FLOAT_FUNCTIONS
using metal::clamp;
using metal::fma;
using metal::max;
using metal::min;
}  // namespace precise

}  // namespace metal
