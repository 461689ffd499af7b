// Scalars, vectors, packed vectors, and what separates the two flavours.
#pragma once
#pragma clang system_header

#ifdef __OPENCL_CPP_VERSION__
#define MSL_CHECK 1
#else
#define MSL_RUN 1
#include "backend/metal/emulator/threadgroup.h"
namespace emu = lily::metal::emu;
#endif

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

#ifdef MSL_CHECK
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef uchar uint8_t;
typedef ushort uint16_t;
typedef uint uint32_t;
typedef ulong uint64_t;
typedef ulong size_t;
typedef long ptrdiff_t;
#define device __global
#define threadgroup __local
#define constant __constant
#define thread __private
#define MSL_FUNCTION inline
#define MSL_UNSEEN
#define MSL_SHARED(T) 0
#else
typedef _Float16 half;
#define device
#define threadgroup
#define constant const
#define thread
// Of the shim's own accesses the race checker must not hear.
#define MSL_UNSEEN __attribute__((no_sanitize("thread")))
#define MSL_FUNCTION MSL_UNSEEN inline
// A declaration's own key: the lambda is a type of its own each time.
#define MSL_SHARED(T)                             \
  ([]() __attribute__((always_inline)) {          \
    static const char key = 0;                    \
    return ::emu::shared_object(&key, sizeof(T)); \
  }())
// The place of a call, as a default argument.
#define MSL_HERE \
  ::emu::Place at = {__builtin_FILE(), (unsigned)__builtin_LINE(), (unsigned)__builtin_COLUMN()}
#endif
#define METAL_FUNC inline __attribute__((always_inline))
typedef __bf16 bfloat;

#ifdef MSL_RUN
inline constexpr half operator""h(long double value) {
  return half(value);
}
// GCC's runtime library has this conversion from version 13 on: rounds to the nearest, ties to even.
extern "C" __attribute__((weak, no_sanitize("thread"))) bfloat __truncsfbf2(float value) {
  uint bits = __builtin_bit_cast(uint, value);
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  bits = is_nan ? bits | 0x400000U : bits + 0x7fffU + (bits >> 16U & 1U);
  return __builtin_bit_cast(bfloat, ushort(bits >> 16U));
}
#endif

#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#define MAXFLOAT 3.402823466e+38f
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LN2_F 0.693147180559945309417f
#define M_PI_F 3.14159265358979323846f

namespace metal {
using ::uchar;
using ::uint;
using ::ulong;
using ::ushort;

template <class T, int N>
using vec = T __attribute__((ext_vector_type(N)));
#define MSL_VECTORS(T)    \
  using T##2 = vec<T, 2>; \
  using T##3 = vec<T, 3>; \
  using T##4 = vec<T, 4>;
MSL_VECTORS(char)
MSL_VECTORS(uchar)
MSL_VECTORS(short)
MSL_VECTORS(ushort)
MSL_VECTORS(int)
MSL_VECTORS(uint)
MSL_VECTORS(long)
MSL_VECTORS(ulong)
MSL_VECTORS(half)
MSL_VECTORS(float)
MSL_VECTORS(bfloat)
using bool2 = int2;  // comparisons of vectors give integer lanes
using bool3 = int3;
using bool4 = int4;

template <bool B, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  using type = T;
};
template <bool B, class T = void>
using enable_if_t = typename enable_if<B, T>::type;
template <class A, class B>
constexpr constant bool is_same_v = false;
template <class A>
constexpr constant bool is_same_v<A, A> = true;
template <bool B, class T, class F>
struct conditional {
  using type = T;
};
template <class T, class F>
struct conditional<false, T, F> {
  using type = F;
};
template <bool B, class T, class F>
using conditional_t = typename conditional<B, T, F>::type;

template <class T, int N>
struct packed_vec;

namespace detail {

template <class T>
struct shape {
  static constexpr constant int lanes = 1;
  static constexpr constant bool is_vector = false;
  using element = T;
};
template <class T, int N>
struct shape<packed_vec<T, N>> {
  static constexpr constant int lanes = N;
  static constexpr constant bool is_vector = true;
  using element = T;
};
template <class T, int N>
struct shape<T __attribute__((ext_vector_type(N)))> {
  static constexpr constant int lanes = N;
  static constexpr constant bool is_vector = true;
  using element = T;
};

template <class T>
MSL_FUNCTION T unpack(T a) {
  return a;
}
template <class T, int N>
MSL_FUNCTION vec<T, N> unpack(packed_vec<T, N> a);

template <class V, int At>
MSL_FUNCTION void put(thread V&) {}
template <class V, int At, class A, class... Rest>
MSL_FUNCTION void put(thread V& v, A a, Rest... rest) {
  using E = typename shape<V>::element;
  if constexpr (shape<A>::is_vector) {
    auto values = unpack(a);
    for (int i = 0; i < shape<A>::lanes; i++) v[At + i] = (E)values[i];
  } else {
    v[At] = (E)a;
  }
  put<V, At + shape<A>::lanes, Rest...>(v, rest...);
}
template <class... A>
struct lanes_of {
  static constexpr constant int value = 0;
};
template <class A, class... Rest>
struct lanes_of<A, Rest...> {
  static constexpr constant int value = shape<A>::lanes + lanes_of<Rest...>::value;
};

/// What `float4(...)` makes (msl_constructors.h).
template <class V>
MSL_FUNCTION V make() {
  return V(0);
}
template <class V, class A>
MSL_FUNCTION V make(A a) {
  if constexpr (!shape<V>::is_vector) {
    return (V)a;
  } else if constexpr (shape<A>::is_vector) {
    static_assert(shape<A>::lanes == shape<V>::lanes, "a vector's conversion changes its length");
    return __builtin_convertvector(unpack(a), V);
  } else {
    return (V)(typename shape<V>::element)a;
  }
}
template <class V, class A, class B, class... Rest>
MSL_FUNCTION V make(A a, B b, Rest... rest) {
  static_assert(lanes_of<A, B, Rest...>::value == shape<V>::lanes, "wrong number of components");
  V v;
  put<V, 0>(v, a, b, rest...);
  return v;
}

}  // namespace detail

template <class T, int N>
struct packed_vec {
  T v[N];
  packed_vec() = default;
  template <class A, class... Rest>
  MSL_FUNCTION packed_vec(A a, Rest... rest) {
    vec<T, N> values = detail::make<vec<T, N>>(a, rest...);
    for (int i = 0; i < N; i++) v[i] = values[i];
  }
#ifdef MSL_CHECK
  device T& operator[](int) device;
  device const T& operator[](int) const device;
#endif
  MSL_FUNCTION operator vec<T, N>() const {
    vec<T, N> values;
    for (int i = 0; i < N; i++) values[i] = v[i];
    return values;
  }
  MSL_FUNCTION thread T& operator[](int i) { return v[i]; }
  MSL_FUNCTION thread const T& operator[](int i) const { return v[i]; }
};
namespace detail {
template <class T, int N>
MSL_FUNCTION vec<T, N> unpack(packed_vec<T, N> a) {
  return a;
}
}  // namespace detail
#define MSL_PACKED(T)                     \
  using packed_##T##2 = packed_vec<T, 2>; \
  using packed_##T##3 = packed_vec<T, 3>; \
  using packed_##T##4 = packed_vec<T, 4>;
MSL_PACKED(char)
MSL_PACKED(uchar)
MSL_PACKED(short)
MSL_PACKED(ushort)
MSL_PACKED(int)
MSL_PACKED(uint)
MSL_PACKED(half)
MSL_PACKED(float)
MSL_PACKED(bfloat)

template <class T, class From>
MSL_FUNCTION T as_type(From from) {
  static_assert(sizeof(T) == sizeof(From), "as_type changes the size");
  return __builtin_bit_cast(T, from);
}

template <class T>
struct numeric_limits;
template <>
struct numeric_limits<float> {
  static constexpr float max() { return 3.402823466e+38f; }
  static constexpr float lowest() { return -3.402823466e+38f; }
  static constexpr float infinity() { return __builtin_inff(); }
};
template <>
struct numeric_limits<half> {
  static constexpr half max() { return half(65504.0f); }
  static constexpr half lowest() { return half(-65504.0f); }
  static constexpr half infinity() { return half(__builtin_inff()); }
};
template <>
struct numeric_limits<uint> {
  static constexpr uint max() { return ~0u; }
  static constexpr uint lowest() { return 0; }
};
template <>
struct numeric_limits<int> {
  static constexpr int max() { return 0x7fffffff; }
  static constexpr int lowest() { return -0x7fffffff - 1; }
};

}  // namespace metal
