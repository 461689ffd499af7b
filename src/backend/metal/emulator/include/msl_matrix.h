// 8x8 matrices of a SIMD-group. Each lane holds two elements; which ones is the executor's business, not the
// kernel's.
#pragma once
#pragma clang system_header
#include "msl_simd.h"

namespace metal {

#ifdef MSL_CHECK

template <class T, int Rows, int Columns>
struct simdgroup_matrix {
  T elements[2];
  simdgroup_matrix();
  explicit simdgroup_matrix(T);
  thread vec<T, 2>& thread_elements();
};
template <class T>
void simdgroup_load(thread simdgroup_matrix<T, 8, 8>&, device const T*, ulong = 8, ulong2 = ulong2(0),
                    bool = false);
template <class T>
void simdgroup_load(thread simdgroup_matrix<T, 8, 8>&, threadgroup const T*, ulong = 8, ulong2 = ulong2(0),
                    bool = false);
template <class T>
void simdgroup_store(simdgroup_matrix<T, 8, 8>, device T*, ulong = 8, ulong2 = ulong2(0), bool = false);
template <class T>
void simdgroup_store(simdgroup_matrix<T, 8, 8>, threadgroup T*, ulong = 8, ulong2 = ulong2(0), bool = false);
template <class D, class A, class B, class C>
void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8>&, simdgroup_matrix<A, 8, 8>,
                                   simdgroup_matrix<B, 8, 8>, simdgroup_matrix<C, 8, 8>);
template <class D, class A, class B>
void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8>&, simdgroup_matrix<A, 8, 8>,
                        simdgroup_matrix<B, 8, 8>);
template <class T, int Rows, int Columns>
simdgroup_matrix<T, Rows, Columns> make_filled_simdgroup_matrix(T);

#else

namespace detail {
/// Where a lane's first element lies; the second is right of it.
struct Element {
  unsigned row;
  unsigned column;
};
MSL_FUNCTION Element element_of(unsigned lane) {
  const unsigned quad = lane / 4;
  return {(quad & 4) + lane / 2 % 4, (quad & 2) * 2 + lane % 2 * 2};
}
MSL_FUNCTION Element my_element() {
  return element_of(emu::self->lane);
}
}  // namespace detail

template <class T, int Rows, int Columns>
struct simdgroup_matrix {
  static_assert(Rows == 8 && Columns == 8, "only 8x8");
  vec<T, 2> elements;
  simdgroup_matrix() = default;
  /// A diagonal matrix.
  MSL_FUNCTION explicit simdgroup_matrix(T v) {
    const detail::Element e = detail::my_element();
    elements = vec<T, 2>{e.row == e.column ? v : T(0), e.row == e.column + 1 ? v : T(0)};
  }
  MSL_FUNCTION thread vec<T, 2>& thread_elements() { return elements; }
};
template <class T, int Rows, int Columns>
MSL_FUNCTION simdgroup_matrix<T, Rows, Columns> make_filled_simdgroup_matrix(T v) {
  simdgroup_matrix<T, Rows, Columns> m;
  m.elements = vec<T, 2>(v);
  return m;
}

// A load or store touches the lane's own two elements alone, so nobody waits, and races stay visible.
template <class T>
inline void simdgroup_load(simdgroup_matrix<T, 8, 8>& m, const T* from, ulong stride = 8,
                           ulong2 origin = ulong2(0), bool transposed = false) {
  const detail::Element e = detail::my_element();
  const T* at = from + origin.y * stride + origin.x +
                (transposed ? e.column * stride + e.row : e.row * stride + e.column);
  m.elements[0] = at[0];
  m.elements[1] = at[transposed ? stride : 1];
}
template <class T>
inline void simdgroup_store(simdgroup_matrix<T, 8, 8> m, T* to, ulong stride = 8, ulong2 origin = ulong2(0),
                            bool transposed = false) {
  const detail::Element e = detail::my_element();
  T* at = to + origin.y * stride + origin.x +
          (transposed ? e.column * stride + e.row : e.row * stride + e.column);
  at[0] = m.elements[0];
  at[transposed ? stride : 1] = m.elements[1];
}

/// d = a b + c, summed in float.
template <class D, class A, class B, class C>
MSL_FUNCTION void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a,
                                                simdgroup_matrix<B, 8, 8> b, simdgroup_matrix<C, 8, 8> c,
                                                MSL_HERE) {
  struct Given {
    vec<A, 2> a;
    vec<B, 2> b;
    vec<C, 2> c;
  };
  const Given mine{a.elements, b.elements, c.elements};
  d.elements = emu::meet<Given, vec<D, 2> >(
      "simdgroup_multiply_accumulate", mine,
      [](emu::SimdGroup& simd, unsigned parity) MSL_UNSEEN {
        if (simd.present != ~0u) emu::fail("a simdgroup matrix operation needs 32 lanes");
        float left[8][8], right[8][8], sum[8][8];
        for (unsigned lane = 0; lane < 32; lane++) {
          const detail::Element e = detail::element_of(lane);
          const Given g = detail::given<Given>(simd, parity, lane);
          for (unsigned i = 0; i < 2; i++) {
            left[e.row][e.column + i] = float(g.a[i]);
            right[e.row][e.column + i] = float(g.b[i]);
            sum[e.row][e.column + i] = float(g.c[i]);
          }
        }
        for (int row = 0; row < 8; row++) {
          for (int k = 0; k < 8; k++) {
            for (int column = 0; column < 8; column++) sum[row][column] += left[row][k] * right[k][column];
          }
        }
        for (unsigned lane = 0; lane < 32; lane++) {
          const detail::Element e = detail::element_of(lane);
          detail::hand_out(simd, parity, lane,
                           vec<D, 2>{D(sum[e.row][e.column]), D(sum[e.row][e.column + 1])});
        }
      },
      at);
}
template <class D, class A, class B>
MSL_FUNCTION void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a,
                                     simdgroup_matrix<B, 8, 8> b, MSL_HERE) {
  simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8, 8>(D(0)), at);
}

#endif

using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;
using simdgroup_half8x8 = simdgroup_matrix<half, 8, 8>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat, 8, 8>;

}  // namespace metal
