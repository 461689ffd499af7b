// Tile heights, in rows of 16, that the grouped products have kernels for.
#pragma once

#include "backend/cuda/kernels.h"

namespace lily::cuda {

// Which heights can share one kernel is decided by ptxas: with more of them, or larger groups of wgmma in
// flight, it serialises every wgmma of the kernel. Short tiles are for few rows an expert.
LILY_HD constexpr int tile_rows(TileSet set) {
  return set == TileSet::kShort ? 64 : 128;
}
LILY_HD constexpr int tile_height(int rows, TileSet set) {
  const int height = (rows + 15) / 16;
  return set == TileSet::kShort && height == 3 ? 4 : height;
}

/// Lists of all rows of a step, a list for each largest height.
inline constexpr int kDenseTileLists = 4;
LILY_HD constexpr int dense_tile_rows(int list) {
  return 16 << list;
}
static_assert(dense_tile_rows(kDenseTileLists - 1) == tile_rows(TileSet::kTall));

}  // namespace lily::cuda
