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
}

void RowBlock::clear() {
  rows_ = segments_ = chunks_ = longest_ = length_ = 0;
}

void RowBlock::add(const Segment& segment) {
  const auto count = static_cast<int>(segment.rows());
  const auto position_of_first = static_cast<int>(segment.position);
  const int first_chunk = position_of_first / kDeltaChunk;
  const int chunks = (position_of_first + count - 1) / kDeltaChunk - first_chunk + 1;
  segment_rows.as<SegmentRows>()[segments_] = {.first_row = rows_,
                                               .rows = count,
                                               .position = position_of_first,
                                               .slot = segment.slot,
                                               .table = segments_,
                                               .first_chunk = chunks_,
                                               .chunks = chunks};
  const int end = rows_ + count;
  for (int i = 0; i < count; ++i, ++rows_) {
    token.as<int>()[rows_] = segment.tokens[static_cast<std::size_t>(i)];
    position.as<int>()[rows_] = position_of_first + i;
    slot.as<int>()[rows_] = segment.slot;
    table.as<int>()[rows_] = segments_;
    last.as<int>()[rows_] = end - 1;
    float* angles = rope.as<float>() + static_cast<std::ptrdiff_t>(rows_) * kRotary;
    for (std::size_t j = 0; j < frequencies_.size(); ++j) {  // in double: an angle may be 262,143
      const double angle = (position_of_first + i) * frequencies_[j];
      angles[j] = static_cast<float>(std::cos(angle));
      angles[frequencies_.size() + j] = static_cast<float>(std::sin(angle));
    }
  }
  const std::int64_t needed = (segment.position + count + kKvPageTokens - 1) / kKvPageTokens;
  std::copy_n(segment.pages.begin(), needed, pages.as<int>() + segments_ * limits_.pages);
  chunks_ += chunks;
  longest_ = std::max(longest_, count);
  length_ = std::max(length_, position_of_first + count);
  ++segments_;
}

}  // namespace lily::metal
