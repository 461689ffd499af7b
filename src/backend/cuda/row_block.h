// The rows of one phase of a step: tokens, positions, slots and page tables, gathered on the host and sent in
// one copy to where the kernels (and recorded graphs) expect them.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "backend/cuda/device.h"

namespace lily::cuda {

class RowBlock {
 public:
  RowBlock() = default;
  /// At most `rows` rows of `segments` segments with tables of `page_stride` pages.
  [[nodiscard]] static Result<RowBlock> create(std::int64_t rows, std::int64_t segments,
                                               std::int64_t page_stride);

  void clear();
  void add(const Segment& segment);
  /// Index of a residual row whose logits are wanted, in their order.
  void want(std::int64_t row) { host_.wanted[wanted_++] = static_cast<int>(row); }
  void send(cudaStream_t stream);

  [[nodiscard]] int rows() const { return rows_; }
  [[nodiscard]] int segments() const { return segments_; }
  [[nodiscard]] int chunks() const { return chunks_; }  ///< of 64 positions, of all segments
  [[nodiscard]] int longest_segment() const { return longest_; }
  [[nodiscard]] Rows view() const;
  [[nodiscard]] const SegmentRows* segment_rows() const { return device_.segments; }
  [[nodiscard]] const int* segment_of() const { return device_.table; }
  [[nodiscard]] const int* wanted() const { return device_.wanted; }

 private:
  struct Arrays {
    int* token;
    int* position;
    int* slot;
    int* table;
    int* wanted;
    SegmentRows* segments;
    int* pages;
  };
  [[nodiscard]] static Arrays place(Layout& layout, std::int64_t rows, std::int64_t segments,
                                    std::int64_t page_stride);

  Memory pinned_;
  Memory memory_;
  Memory rope_;
  Arrays host_{};
  Arrays device_{};
  std::int64_t page_stride_ = 0;
  int rows_ = 0;
  int segments_ = 0;
  int longest_ = 0;
  int wanted_ = 0;
  int chunks_ = 0;
};

}  // namespace lily::cuda
