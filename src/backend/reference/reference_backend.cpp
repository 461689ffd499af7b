// The reference backend's memory: residual stream, recurrent slots, K/V pages.
#include "backend/reference/reference_backend.h"

#include <algorithm>
#include <cstring>

namespace lily::reference {

ReferenceBackend::ReferenceBackend(const ModelWeights& weights, const BackendLimits& limits)
    : weights_(weights),
      s_(weights.shapes),
      limits_(limits),
      slots_(static_cast<std::size_t>(limits.slots)),
      pages_(static_cast<std::size_t>(limits.kv_pages)) {}

std::int64_t ReferenceBackend::layer_slot_size() const {
  return s_.recurrent_state_size() + kConvHistory * s_.conv_channels();
}
std::int64_t ReferenceBackend::slot_size() const {
  return s_.slot_size();
}
std::int64_t ReferenceBackend::page_size() const {
  return s_.page_size();
}

void ReferenceBackend::begin(const Batch& batch) {
  LILY_CHECK(batch.rows() <= limits_.max_rows, "step of {} rows, limit {}", batch.rows(), limits_.max_rows);
  batch_ = batch;
  residual_ = Rows(batch.rows(), s_.hidden);
  for (const Segment& segment : batch.segments) {
    LILY_CHECK(!slots_[static_cast<std::size_t>(segment.slot)].empty(), "slot {} was never zeroed",
               segment.slot);
    const std::int64_t needed = (segment.position + segment.rows() + kKvPageTokens - 1) / kKvPageTokens;
    LILY_CHECK(static_cast<std::int64_t>(segment.pages.size()) >= needed, "{} pages for {} tokens",
               segment.pages.size(), segment.position + segment.rows());
    for (const PageId page : segment.pages) {
      State& state = pages_[static_cast<std::size_t>(page)];
      if (state.empty()) state.resize(static_cast<std::size_t>(page_size()));
    }
  }
}

void ReferenceBackend::read_residual(std::span<float> out) {
  LILY_CHECK(out.size() == residual_.data.size(), "{} floats for {}", out.size(), residual_.data.size());
  std::ranges::copy(residual_.data, out.begin());
}

std::span<float> ReferenceBackend::recurrent_state(SlotId slot, int linear_index) {
  return std::span(slots_[static_cast<std::size_t>(slot)])
      .subspan(static_cast<std::size_t>(linear_index * layer_slot_size()),
               static_cast<std::size_t>(s_.recurrent_state_size()));
}

std::span<float> ReferenceBackend::conv_window(SlotId slot, int linear_index) {
  return std::span(slots_[static_cast<std::size_t>(slot)])
      .subspan(static_cast<std::size_t>(linear_index * layer_slot_size() + s_.recurrent_state_size()),
               static_cast<std::size_t>(kConvHistory * s_.conv_channels()));
}

std::span<float> ReferenceBackend::kv_row(const Segment& segment, int attention_index, bool value,
                                          std::int64_t position) {
  const PageId page = segment.pages[static_cast<std::size_t>(position / kKvPageTokens)];
  const std::int64_t row = (attention_index * 2 + (value ? 1 : 0)) * kKvPageTokens + position % kKvPageTokens;
  return std::span(pages_[static_cast<std::size_t>(page)])
      .subspan(static_cast<std::size_t>(row * s_.kv_dim()), static_cast<std::size_t>(s_.kv_dim()));
}

void ReferenceBackend::zero_slot(SlotId slot) {
  slots_[static_cast<std::size_t>(slot)].assign(static_cast<std::size_t>(slot_size()), 0.0F);
}
void ReferenceBackend::copy_slot(SlotId from, SlotId to) {
  slots_[static_cast<std::size_t>(to)] = slots_[static_cast<std::size_t>(from)];
}
void ReferenceBackend::copy_page(PageId from, PageId to) {
  pages_[static_cast<std::size_t>(to)] = pages_[static_cast<std::size_t>(from)];
}
void ReferenceBackend::release_page(PageId page) {
  pages_[static_cast<std::size_t>(page)] = State();
}
void ReferenceBackend::release_slot(SlotId slot) {
  slots_[static_cast<std::size_t>(slot)] = State();
}

void ReferenceBackend::read_slot(SlotId slot, std::span<std::byte> out) {
  std::memcpy(out.data(), slots_[static_cast<std::size_t>(slot)].data(), out.size());
}
void ReferenceBackend::write_slot(SlotId slot, std::span<const std::byte> in) {
  State& state = slots_[static_cast<std::size_t>(slot)];
  state.resize(static_cast<std::size_t>(slot_size()));
  std::memcpy(state.data(), in.data(), in.size());
}
void ReferenceBackend::read_page(PageId page, std::span<std::byte> out) {
  std::memcpy(out.data(), pages_[static_cast<std::size_t>(page)].data(), out.size());
}
void ReferenceBackend::write_page(PageId page, std::span<const std::byte> in) {
  State& state = pages_[static_cast<std::size_t>(page)];
  state.resize(static_cast<std::size_t>(page_size()));
  std::memcpy(state.data(), in.data(), in.size());
}

}  // namespace lily::reference

namespace lily {

Result<std::unique_ptr<Backend>> make_reference_backend(const ModelWeights& weights,
                                                        const BackendLimits& limits) {
  return std::unique_ptr<Backend>(std::make_unique<reference::ReferenceBackend>(weights, limits));
}

}  // namespace lily
