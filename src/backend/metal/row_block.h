// The rows of one phase of a step, written by the host where the kernels read them: tokens, positions, slots,
// page tables, rotary angles.
#pragma once

#include <array>
#include <cstdint>

#include "backend/backend.h"
#include "backend/metal/arena.h"
#include "backend/metal/kernels/kernels.h"

namespace lily::metal {

class RowBlock {
 public:
  static constexpr int kTallFrom = 256;  ///< rows
  struct Limits {
    std::int64_t rows = 0;
    std::int64_t segments = 0;
    std::int64_t pages = 0;  ///< of a sequence
  };
  RowBlock(const Limits& limits, double rope_theta);
  /// Places the arrays; called twice, as all that comes from an arena.
  void place(Arena& arena);

  void clear();
  void add(const Segment& segment);
  /// After the last add(): the tiles of dense products.
  void close();
  /// Tall where enough of them remain to keep the device busy.
  [[nodiscard]] int tile_rows() const { return rows_ >= kTallFrom ? kTallTileRows : kTileRows; }
  [[nodiscard]] int dense_tiles() const { return (rows_ + tile_rows() - 1) / tile_rows(); }
  [[nodiscard]] std::int64_t most_chunks() const;

  [[nodiscard]] int rows() const { return rows_; }
  [[nodiscard]] int segments() const { return segments_; }
  [[nodiscard]] int chunks() const { return chunks_; }    ///< of kDeltaChunk positions, of all segments
  [[nodiscard]] int longest() const { return longest_; }  ///< rows of a segment
  [[nodiscard]] int page_stride() const { return static_cast<int>(limits_.pages); }

  View token;             ///< [T]
  View position;          ///< [T]
  View slot;              ///< [T]
  View table;             ///< [T], row of `pages`
  View last;              ///< [T], last row of the row's segment
  View segment_rows;      ///< [segments] SegmentRows
  View pages;             ///< [segments, page_stride]
  View rope;              ///< [T, kRotary]: cosines, sines
  View row_of_chunk_row;  ///< [chunks, kDeltaChunk], -1 where a chunk has no row
  View chunk_row_of;      ///< [T]
  View tiles;             ///< of dense products

 private:
  void add_row(const Segment& segment, int chunk, int i, int end);

  Limits limits_;
  std::array<double, kRotary / 2> frequencies_{};
  int rows_ = 0;
  int segments_ = 0;
  int chunks_ = 0;
  int longest_ = 0;
};

}  // namespace lily::metal
