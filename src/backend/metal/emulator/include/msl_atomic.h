// Atomics of 32 bits, all of them relaxed as in Metal 3.
#pragma once
#pragma clang system_header
#include "msl_math.h"

namespace metal {

enum memory_order { memory_order_relaxed };

template <class T>
struct atomic {
  T value;
};

#ifdef MSL_CHECK

using msl_atomic_uint = atomic<uint>;  // OpenCL has taken the plain names
using msl_atomic_int = atomic<int>;
using msl_atomic_float = atomic<float>;
#define atomic_uint msl_atomic_uint
#define atomic_int msl_atomic_int
#define atomic_float msl_atomic_float
#define MSL_ATOMIC(name)                      \
  template <class T>                          \
  T name(device atomic<T>*, T, memory_order); \
  template <class T>                          \
  T name(threadgroup atomic<T>*, T, memory_order);
MSL_ATOMIC(atomic_fetch_add_explicit)
MSL_ATOMIC(atomic_fetch_sub_explicit)
MSL_ATOMIC(atomic_fetch_max_explicit)
MSL_ATOMIC(atomic_fetch_min_explicit)
MSL_ATOMIC(atomic_fetch_or_explicit)
MSL_ATOMIC(atomic_exchange_explicit)
template <class T>
T atomic_load_explicit(device const atomic<T>*, memory_order);
template <class T>
T atomic_load_explicit(threadgroup const atomic<T>*, memory_order);
template <class T>
void atomic_store_explicit(device atomic<T>*, T, memory_order);
template <class T>
void atomic_store_explicit(threadgroup atomic<T>*, T, memory_order);

#else

using atomic_uint = atomic<uint>;
using atomic_int = atomic<int>;
using atomic_float = atomic<float>;

namespace detail {
template <class T, class F>
inline T exchange(atomic<T>* p, F next) {
  uint* bits = reinterpret_cast<uint*>(&p->value);
  uint old = __atomic_load_n(bits, __ATOMIC_RELAXED);
  for (;;) {
    const T before = as_type<T>(old);
    const uint after = as_type<uint>(T(next(before)));
    if (__atomic_compare_exchange_n(bits, &old, after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      return before;
  }
}
}  // namespace detail

#define MSL_ATOMIC(name, expression)                                        \
  template <class T>                                                        \
  inline T name(atomic<T>* p, T x, memory_order) {                          \
    return detail::exchange(p, [&](T a) { return (void)a, (expression); }); \
  }
MSL_ATOMIC(atomic_fetch_add_explicit, a + x)
MSL_ATOMIC(atomic_fetch_sub_explicit, a - x)
MSL_ATOMIC(atomic_fetch_max_explicit, metal::max(a, x))
MSL_ATOMIC(atomic_fetch_min_explicit, metal::min(a, x))
MSL_ATOMIC(atomic_fetch_or_explicit, a | x)
MSL_ATOMIC(atomic_exchange_explicit, x)
template <class T>
inline T atomic_load_explicit(const atomic<T>* p, memory_order) {
  return as_type<T>(__atomic_load_n(reinterpret_cast<const uint*>(&p->value), __ATOMIC_RELAXED));
}
template <class T>
inline void atomic_store_explicit(atomic<T>* p, T x, memory_order) {
  __atomic_store_n(reinterpret_cast<uint*>(&p->value), as_type<uint>(x), __ATOMIC_RELAXED);
}

#endif

}  // namespace metal
