// Barriers and what the lanes of a SIMD-group do together.
#pragma once
#pragma clang system_header
#include "msl_types.h"

namespace metal {

enum class mem_flags : uint {
  mem_none = 0,
  mem_device = 1,
  mem_threadgroup = 2,
  mem_texture = 4,
};
constexpr mem_flags operator|(mem_flags a, mem_flags b) {
  return mem_flags(uint(a) | uint(b));
}

#ifdef MSL_CHECK

void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);
bool simd_any(bool);
bool simd_all(bool);
bool simd_is_first();
#define MSL_OF_VALUE(name) \
  template <class T>       \
  T name(T);
MSL_OF_VALUE(simd_sum)
MSL_OF_VALUE(simd_product)
MSL_OF_VALUE(simd_max)
MSL_OF_VALUE(simd_min)
MSL_OF_VALUE(simd_and)
MSL_OF_VALUE(simd_or)
MSL_OF_VALUE(simd_xor)
MSL_OF_VALUE(simd_prefix_exclusive_sum)
MSL_OF_VALUE(simd_prefix_inclusive_sum)
MSL_OF_VALUE(simd_broadcast_first)
MSL_OF_VALUE(quad_sum)
MSL_OF_VALUE(quad_max)
MSL_OF_VALUE(quad_min)
#define MSL_OF_VALUE_AND_LANE(name) \
  template <class T>                \
  T name(T, ushort);
MSL_OF_VALUE_AND_LANE(simd_broadcast)
MSL_OF_VALUE_AND_LANE(simd_shuffle)
MSL_OF_VALUE_AND_LANE(simd_shuffle_xor)
MSL_OF_VALUE_AND_LANE(simd_shuffle_down)
MSL_OF_VALUE_AND_LANE(simd_shuffle_up)
MSL_OF_VALUE_AND_LANE(simd_shuffle_rotate_down)
MSL_OF_VALUE_AND_LANE(simd_shuffle_rotate_up)
MSL_OF_VALUE_AND_LANE(quad_broadcast)
MSL_OF_VALUE_AND_LANE(quad_shuffle)
MSL_OF_VALUE_AND_LANE(quad_shuffle_xor)

#else

MSL_FUNCTION void threadgroup_barrier(mem_flags flags, MSL_HERE) {
  emu::threadgroup_barrier(uint(flags), at);
}

namespace detail {
template <class T>
MSL_FUNCTION T given(const emu::SimdGroup& simd, unsigned parity, unsigned lane) {
  T value;
  __builtin_memcpy(&value, simd.given[parity][lane], sizeof value);
  return value;
}
template <class T>
MSL_FUNCTION void hand_out(emu::SimdGroup& simd, unsigned parity, unsigned lane, T value) {
  __builtin_memcpy(simd.result[parity][lane], &value, sizeof value);
}
MSL_FUNCTION bool is_present(const emu::SimdGroup& simd, unsigned lane) {
  return simd.present >> lane & 1U;
}

/// f over the lanes of each part of `Width` lanes, in the order of a tree, the same for all of them.
template <unsigned Width, class T, class F>
MSL_FUNCTION T reduce(const char* name, T value, F f, emu::Place at) {
  return emu::meet<T, T>(
      name, value,
      [f](emu::SimdGroup& simd, unsigned parity) MSL_UNSEEN {
        for (unsigned first = 0; first < emu::kLanes; first += Width) {
          T values[Width];
          unsigned count = 0;
          for (unsigned i = 0; i < Width; i++) {
            if (is_present(simd, first + i)) values[count++] = given<T>(simd, parity, first + i);
          }
          for (unsigned distance = 1; distance < count; distance *= 2) {
            for (unsigned i = 0; i + distance < count; i += 2 * distance)
              values[i] = f(values[i], values[i + distance]);
          }
          for (unsigned i = 0; i < Width && count > 0; i++) hand_out(simd, parity, first + i, values[0]);
        }
      },
      at);
}

/// The value of lane `source`; what hardware leaves undefined (no such lane) is poison.
template <class T>
MSL_FUNCTION T shuffle(const char* name, T value, int source, emu::Place at) {
  struct Wanted {
    T value;
    int source;
  };
  return emu::meet<Wanted, T>(
      name, Wanted{value, source},
      [](emu::SimdGroup& simd, unsigned parity) MSL_UNSEEN {
        for (unsigned i = 0; i < emu::kLanes; i++) {
          const int from = is_present(simd, i) ? given<Wanted>(simd, parity, i).source : -1;
          if (from >= 0 && from < 32 && is_present(simd, from)) {
            hand_out(simd, parity, i, given<Wanted>(simd, parity, from).value);
          } else {
            __builtin_memset(simd.result[parity][i], 0xff, emu::kResultBytes);
          }
        }
      },
      at);
}

template <bool Inclusive, class T>
MSL_FUNCTION T prefix_sum(const char* name, T value, emu::Place at) {
  return emu::meet<T, T>(
      name, value,
      [](emu::SimdGroup& simd, unsigned parity) MSL_UNSEEN {
        T sum = T(0);
        for (unsigned i = 0; i < emu::kLanes; i++) {
          if (!is_present(simd, i)) continue;
          const T before = sum;
          sum += given<T>(simd, parity, i);
          hand_out(simd, parity, i, Inclusive ? sum : before);
        }
      },
      at);
}

MSL_FUNCTION int lane() {
  return int(emu::self->lane);
}
}  // namespace detail

MSL_FUNCTION void simdgroup_barrier(mem_flags flags, MSL_HERE) {
  if (emu::is_muted(at)) return;
  emu::meet<uint, uint>(
      "simdgroup_barrier", uint(flags),
      [](emu::SimdGroup& simd, unsigned parity) MSL_UNSEEN {
        const uint orders = detail::given<uint>(simd, parity, 0);
        if (orders & emu::kOrdersThreadgroup) ++simd.threadgroup_epoch;
        if (orders & emu::kOrdersDevice) ++simd.device_epoch;
      },
      at);
}

#define MSL_REDUCTION(name, width, expression)                                                         \
  template <class T>                                                                                   \
  MSL_FUNCTION T name(T value, MSL_HERE) {                                                             \
    return detail::reduce<width>(#name, value, [](T a, T b) MSL_UNSEEN { return T(expression); }, at); \
  }
MSL_REDUCTION(simd_sum, 32, a + b)
MSL_REDUCTION(simd_product, 32, a* b)
MSL_REDUCTION(simd_max, 32, metal::max(a, b))
MSL_REDUCTION(simd_min, 32, metal::min(a, b))
MSL_REDUCTION(simd_and, 32, a& b)
MSL_REDUCTION(simd_or, 32, a | b)
MSL_REDUCTION(simd_xor, 32, a ^ b)
MSL_REDUCTION(quad_sum, 4, a + b)
MSL_REDUCTION(quad_max, 4, metal::max(a, b))
MSL_REDUCTION(quad_min, 4, metal::min(a, b))

MSL_FUNCTION bool simd_any(bool value, MSL_HERE) {
  return detail::reduce<32>(
             "simd_any", uint(value), [](uint a, uint b) MSL_UNSEEN { return a | b; }, at) != 0;
}
MSL_FUNCTION bool simd_all(bool value, MSL_HERE) {
  return detail::reduce<32>(
             "simd_all", uint(value), [](uint a, uint b) MSL_UNSEEN { return a & b; }, at) != 0;
}
MSL_FUNCTION bool simd_is_first() {
  return detail::lane() == 0;
}

template <class T>
MSL_FUNCTION T simd_prefix_exclusive_sum(T value, MSL_HERE) {
  return detail::prefix_sum<false>("simd_prefix_exclusive_sum", value, at);
}
template <class T>
MSL_FUNCTION T simd_prefix_inclusive_sum(T value, MSL_HERE) {
  return detail::prefix_sum<true>("simd_prefix_inclusive_sum", value, at);
}

#define MSL_SHUFFLE(name, source)                       \
  template <class T>                                    \
  MSL_FUNCTION T name(T value, ushort n, MSL_HERE) {    \
    const int lane = detail::lane();                    \
    return detail::shuffle(#name, value, (source), at); \
  }
MSL_SHUFFLE(simd_broadcast, n)
MSL_SHUFFLE(simd_shuffle, n)
MSL_SHUFFLE(simd_shuffle_xor, lane ^ n)
// Lanes whose source lies outside the SIMD-group keep their own value.
MSL_SHUFFLE(simd_shuffle_down, lane + n < 32 ? lane + n : lane)
MSL_SHUFFLE(simd_shuffle_up, lane >= n ? lane - n : lane)
MSL_SHUFFLE(simd_shuffle_rotate_down, (lane + n) & 31)
MSL_SHUFFLE(simd_shuffle_rotate_up, (lane - n) & 31)
MSL_SHUFFLE(quad_broadcast, (lane & ~3) | n)
MSL_SHUFFLE(quad_shuffle, (lane & ~3) | n)
MSL_SHUFFLE(quad_shuffle_xor, n < 4 ? lane ^ n : -1)
template <class T>
MSL_FUNCTION T simd_broadcast_first(T value, MSL_HERE) {
  return detail::shuffle("simd_broadcast_first", value, 0, at);
}

#endif

}  // namespace metal
