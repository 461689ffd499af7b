#include "backend/cuda/row_block.h"

#include <algorithm>

namespace lily::cuda {

RowBlock::Arrays RowBlock::place(Layout& layout, std::int64_t rows, std::int64_t segments,
                                 std::int64_t page_stride) {
  Arrays arrays{};
  arrays.token = layout.take<int>(rows);
  arrays.position = layout.take<int>(rows);
  arrays.slot = layout.take<int>(rows);
  arrays.table = layout.take<int>(rows);
  arrays.wanted = layout.take<int>(rows);
  arrays.segments = layout.take<SegmentRows>(segments);
  arrays.pages = layout.take<int>(segments * page_stride);  // last: only what is used of it is sent
  return arrays;
}

Result<RowBlock> RowBlock::create(std::int64_t rows, std::int64_t segments, std::int64_t page_stride) {
  RowBlock block;
  block.page_stride_ = page_stride;
  Layout measure;
  (void)place(measure, rows, segments, page_stride);
  LILY_TRY(block.pinned_, Memory::allocate(Memory::Kind::kPinned, measure.used(), "rows of a step"));
  LILY_TRY(block.memory_, Memory::allocate(Memory::Kind::kDevice, measure.used(), "rows of a step"));
  LILY_TRY(block.rope_, Memory::allocate(Memory::Kind::kDevice, rows * kRotary * 4, "rotary angles"));
  Layout host(block.pinned_.data());
  block.host_ = place(host, rows, segments, page_stride);
  Layout device(block.memory_.data());
  block.device_ = place(device, rows, segments, page_stride);
  return block;
}

void RowBlock::clear() {
  rows_ = segments_ = longest_ = wanted_ = chunks_ = 0;
}

void RowBlock::add(const Segment& segment) {
  const int count = static_cast<int>(segment.rows());
  const auto first = static_cast<int>(segment.position / kChunk);
  const auto last = static_cast<int>((segment.position + count - 1) / kChunk);
  host_.segments[segments_] = {.first_row = rows_,
                               .rows = count,
                               .position = static_cast<int>(segment.position),
                               .slot = segment.slot,
                               .table = segments_,
                               .first_chunk = chunks_,
                               .chunks = last - first + 1};
  chunks_ += last - first + 1;
  for (int i = 0; i < count; ++i, ++rows_) {
    host_.token[rows_] = segment.tokens[static_cast<std::size_t>(i)];
    host_.position[rows_] = static_cast<int>(segment.position) + i;
    host_.slot[rows_] = segment.slot;
    host_.table[rows_] = segments_;
  }
  const std::int64_t needed = (segment.position + count + kKvPageTokens - 1) / kKvPageTokens;
  std::copy_n(segment.pages.begin(), needed, host_.pages + segments_ * page_stride_);
  longest_ = std::max(longest_, count);
  ++segments_;
}

void RowBlock::send(cudaStream_t stream) {
  const auto* begin = pinned_.data();
  const auto* end = reinterpret_cast<const std::byte*>(host_.pages + segments_ * page_stride_);
  note_error(cudaMemcpyAsync(memory_.data(), begin, static_cast<std::size_t>(end - begin),
                             cudaMemcpyHostToDevice, stream),
             "sending a step's rows");
}

Rows RowBlock::view() const {
  return {.token = device_.token,
          .position = device_.position,
          .slot = device_.slot,
          .table = device_.table,
          .pages = device_.pages,
          .page_stride = static_cast<int>(page_stride_),
          .rope = reinterpret_cast<float*>(rope_.data()),
          .count = rows_};
}

}  // namespace lily::cuda
