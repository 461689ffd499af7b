#include "backend/metal/row_block.h"

#include <algorithm>
#include <cmath>

namespace lily::metal {

RowBlock::RowBlock(const Limits& limits, double rope_theta) : limits_(limits) {
  for (std::size_t j = 0; j < frequencies_.size(); ++j)
    frequencies_[j] = std::pow(rope_theta, -2.0 * static_cast<double>(j) / static_cast<double>(kRotary));
}

void RowBlock::place(Arena& arena) {
  token = arena.take<int>(limits_.rows);
  position = arena.take<int>(limits_.rows);
  slot = arena.take<int>(limits_.rows);
  table = arena.take<int>(limits_.rows);
  last = arena.take<int>(limits_.rows);
  segment_rows = arena.take<SegmentRows>(limits_.segments);
  pages = arena.take<int>(limits_.segments * limits_.pages);
  rope = arena.take<float>(limits_.rows * kRotary);
  row_of_chunk_row = arena.take<int>(most_chunks() * kDeltaChunk);
  chunk_row_of = arena.take<int>(limits_.rows);
  tiles = arena.take<Tile>((limits_.rows + kTileRows - 1) / kTileRows);
}

std::int64_t RowBlock::most_chunks() const {  // a segment may begin and end within one
  return limits_.rows / kDeltaChunk + 2 * limits_.segments;
}

void RowBlock::clear() {
  rows_ = segments_ = chunks_ = longest_ = 0;
}

void RowBlock::add(const Segment& segment) {
  const auto count = static_cast<int>(segment.rows());
  const auto begin = static_cast<int>(segment.position);
  const int first_chunk = begin / kDeltaChunk;
  const int chunks = (begin + count - 1) / kDeltaChunk - first_chunk + 1;
  segment_rows.as<SegmentRows>()[segments_] = {.first_row = rows_,
                                               .rows = count,
                                               .position = begin,
                                               .slot = segment.slot,
                                               .table = segments_,
                                               .first_chunk = chunks_,
                                               .chunks = chunks};
  std::fill_n(row_of_chunk_row.as<int>() + static_cast<std::ptrdiff_t>(chunks_) * kDeltaChunk,
              chunks * kDeltaChunk, -1);
  const int end = rows_ + count;
  for (int i = 0; i < count; ++i) add_row(segment, (begin + i) / kDeltaChunk - first_chunk, i, end);
  const std::int64_t needed = (segment.position + count + kKvPageTokens - 1) / kKvPageTokens;
  std::copy_n(segment.pages.begin(), needed, pages.as<int>() + segments_ * limits_.pages);
  chunks_ += chunks;
  longest_ = std::max(longest_, count);
  ++segments_;
}

// Row `i` of a segment that ends before row `end`, in the segment's chunk `chunk`.
void RowBlock::add_row(const Segment& segment, int chunk, int i, int end) {
  const int at = static_cast<int>(segment.position) + i;
  token.as<int>()[rows_] = segment.tokens[static_cast<std::size_t>(i)];
  position.as<int>()[rows_] = at;
  slot.as<int>()[rows_] = segment.slot;
  table.as<int>()[rows_] = segments_;
  last.as<int>()[rows_] = end - 1;
  const int chunk_begin = std::max(at / kDeltaChunk * kDeltaChunk, static_cast<int>(segment.position));
  const int chunk_row = (chunks_ + chunk) * kDeltaChunk + at - chunk_begin;
  row_of_chunk_row.as<int>()[chunk_row] = rows_;
  chunk_row_of.as<int>()[rows_] = chunk_row;
  float* angles = rope.as<float>() + static_cast<std::ptrdiff_t>(rows_) * kRotary;
  for (std::size_t j = 0; j < frequencies_.size(); ++j) {  // in double: an angle may be 262,143
    const double angle = at * frequencies_[j];
    angles[j] = static_cast<float>(std::cos(angle));
    angles[frequencies_.size() + j] = static_cast<float>(std::sin(angle));
  }
  ++rows_;
}

void RowBlock::close() {
  for (int i = 0; i < dense_tiles(); ++i) {
    tiles.as<Tile>()[i] = {
        .expert = 0, .start = i * tile_rows(), .rows = std::min(rows_ - i * tile_rows(), tile_rows())};
  }
}

}  // namespace lily::metal
