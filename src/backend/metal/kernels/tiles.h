// 8x8 matrices of a SIMD-group, and which of their elements a lane holds: two of one row, side by side. The
// hardware's layout is not in Apple's books; engines on every Apple GPU rest on this one, and these two
// functions are the only place that names it.
#pragma once

#include "functions.h"

typedef simdgroup_matrix<float, 8, 8> FloatTile;
typedef simdgroup_matrix<bfloat, 8, 8> BfloatTile;

inline int matrix_row(uint lane) {
  return int(((lane >> 2) & 4u) | ((lane >> 1) & 3u));
}
inline int matrix_column(uint lane) {
  return int(((lane >> 1) & 4u) | ((lane << 1) & 2u));
}

/// A lane's two elements, and what becomes of them.
inline float2 elements(thread FloatTile& tile) {
  return float2(tile.thread_elements()[0], tile.thread_elements()[1]);
}
inline void scale_elements(thread FloatTile& tile, float factor) {
  tile.thread_elements()[0] *= factor;
  tile.thread_elements()[1] *= factor;
}
