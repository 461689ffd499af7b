// The head: logits of the rows that want them, and what of them leaves the device.
#include <algorithm>
#include <limits>

#include "backend/metal/metal_backend.h"

namespace lily::metal {

void MetalBackend::compute_logits(const View& index, int rows) {
  project(device_weights_->head, {.x = scratch_.residual,
                                  .rows = rows,
                                  .gain = device_weights_->norm,
                                  .out = scratch_.logits,
                                  .index = index});
}

void MetalBackend::choose(int rows, TokenId end) {
  encoder_.use(*pipelines_.argmax_parts)
      .read(0, scratch_.logits)
      .write(1, scratch_.best_values)
      .write(2, scratch_.best_indices)
      .value(3, ArgmaxArgs{.stride = static_cast<int>(s_.vocab), .limit = end})
      .dispatch({.x = kArgmaxGroups, .y = static_cast<std::uint32_t>(rows)}, kArgmaxThreads);
  encoder_.use(*pipelines_.argmax_join)
      .read(0, scratch_.best_values)
      .read(1, scratch_.best_indices)
      .write(2, scratch_.best)
      .dispatch({.x = static_cast<std::uint32_t>(rows)}, kSimd);
}

void MetalBackend::list_candidates(int rows, TokenId end) {
  const CandidateScratch& c = scratch_.candidates;
  const CandidateArgs args{.stride = static_cast<int>(s_.vocab), .limit = end};
  const Extents grid{.x = kCandidateGroups, .y = static_cast<std::uint32_t>(rows)};
  encoder_.use(*pipelines_.find_largest)
      .read(0, scratch_.logits)
      .write(1, c.largest)
      .write(2, c.bins)
      .write(3, c.counts)
      .value(4, args)
      .dispatch(grid, kCandidateThreads);
  encoder_.use(*pipelines_.count_bins)
      .read(0, scratch_.logits)
      .read(1, c.largest)
      .write(2, c.bins)
      .value(3, args)
      .dispatch(grid, kCandidateThreads);
  encoder_.use(*pipelines_.collect_candidates)
      .read(0, scratch_.logits)
      .read(1, c.largest)
      .read(2, c.bins)
      .write(3, c.counts)
      .write(4, c.list)
      .write(5, c.left_out)
      .value(6, args)
      .dispatch(grid, kCandidateThreads);
}

Candidates MetalBackend::candidates_of(std::int64_t row) const {
  const CandidateScratch& c = scratch_.candidates;
  const int count = c.counts.as<int>()[row];
  if (count == 0) return {.list = {}, .above = std::numeric_limits<float>::infinity()};
  const float* left_out = c.left_out.as<float>() + row * kCandidateParts;
  Candidates candidates{.list = {}, .above = *std::max_element(left_out, left_out + kCandidateParts)};
  candidates.list.reserve(static_cast<std::size_t>(count));
  const ListedLogit* listed = c.list.as<ListedLogit>() + row * kMostCandidates;
  for (int i = 0; i < count; ++i) candidates.list.push_back({listed[i].id, listed[i].logit});
  return candidates;
}

// Logits leave the device kLogitsRows at a time.
void MetalBackend::head(const HeadBlock& block) {
  const std::int64_t total = batch_.logits_rows();
  LILY_CHECK(block.candidates.empty() || total <= kLogitsRows, "candidates of {} rows", total);
  for (std::int64_t first = 0; first < total; first += kLogitsRows) {
    const auto rows = static_cast<int>(std::min(kLogitsRows, total - first));
    compute_logits(scratch_.wanted.from(first * 4), rows);
    if (!block.best.empty()) choose(rows, block.best_end);
    if (!block.candidates.empty()) list_candidates(rows, block.best_end);
    (void)finish();  // an error is kept for the step's own finish()
    take_results(block, first, rows);
  }
}

void MetalBackend::take_results(const HeadBlock& block, std::int64_t first, std::int64_t rows) const {
  if (!block.best.empty()) {
    std::copy_n(scratch_.best.as<int>(), rows, block.best.begin() + first);
  } else if (block.candidates.empty()) {
    std::copy_n(scratch_.logits.as<float>(), rows * s_.vocab, block.logits.begin() + first * s_.vocab);
  } else if (status_.ok()) {
    for (std::int64_t row = 0; row < rows; ++row) {
      block.candidates[static_cast<std::size_t>(first + row)] = candidates_of(row);
    }
  }
}

void MetalBackend::read_logits(std::int64_t row, std::span<float> out) {
  LILY_CHECK(row < kLogitsRows && std::ssize(out) == s_.vocab, "row {}, {} floats", row, out.size());
  std::copy_n(scratch_.logits.as<float>() + row * s_.vocab, s_.vocab, out.begin());
}

}  // namespace lily::metal
