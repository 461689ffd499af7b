// Memory, state and the course of a step. What the blocks do is in blocks_decode.cpp and blocks_prefill.cpp.
#include "backend/metal/metal_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/log.h"
#include "model/kv_type.h"

namespace lily::metal {
namespace {

double gib(std::int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 30);
}

}  // namespace

Result<std::unique_ptr<Backend>> MetalBackend::create(std::string name, std::unique_ptr<GpuDevice> device,
                                                      const ModelWeights& weights,
                                                      const BackendLimits& limits) {
  LILY_TRY_VOID(check_supported(weights));
  auto backend =
      std::unique_ptr<MetalBackend>(new MetalBackend(std::move(name), std::move(device), weights, limits));
  LILY_TRY(backend->pipelines_, Pipelines::compile(*backend->device_, has_small_groups(weights)));
  LILY_TRY_VOID(backend->allocate());
  return std::unique_ptr<Backend>(std::move(backend));
}

MetalBackend::MetalBackend(std::string name, std::unique_ptr<GpuDevice> device, const ModelWeights& weights,
                           const BackendLimits& limits)
    : name_(std::move(name)),
      weights_(weights),
      s_(weights.shapes),
      limits_(limits),
      device_(std::move(device)),
      slot_floats_(s_.linear_layers * (s_.recurrent_state_size() + kConvRing * s_.conv_channels())),
      page_values_(s_.page_size()),
      weight_arena_(device_->facts().max_buffer_bytes),
      state_arena_(device_->facts().max_buffer_bytes),
      scratch_arena_(device_->facts().max_buffer_bytes),
      prefill_({.rows = limits.max_rows, .segments = limits.slots, .pages = limits.kv_pages}, s_.rope_theta),
      decode_({.rows = limits.slots, .segments = limits.slots, .pages = limits.kv_pages}, s_.rope_theta),
      encoder_(*device_) {}

// Everything is measured before anything is allocated, so that too little memory is told in one message.
Result<void> MetalBackend::allocate() {
  const auto place = [this] {
    device_weights_ = std::make_unique<DeviceWeights>(weights_, weight_arena_);
    slots_ = state_arena_.take_bytes(limits_.slots * slot_bytes());
    pages_ = state_arena_.take_bytes(limits_.kv_pages * page_bytes());
    prefill_.place(scratch_arena_);
    decode_.place(scratch_arena_);
    scratch_ = Scratch::place(scratch_arena_, s_, *device_weights_,
                              {.prefill_rows = limits_.max_rows,
                               .prefill_chunks = prefill_.most_chunks(),
                               .decode_rows = limits_.slots});
  };
  place();
  const std::int64_t needed = weight_arena_.used() + state_arena_.used() + scratch_arena_.used();
  const DeviceFacts& facts = device_->facts();
  const std::string plan = fmt::format(
      "{:.2f} GiB: weights {:.2f}, K/V pages {:.2f}, recurrent states {:.2f}, scratch {:.2f}", gib(needed),
      gib(weight_arena_.used()), gib(pages_.size), gib(slots_.size), gib(scratch_arena_.used()));
  if (needed > facts.working_set_bytes) {
    return fail(ErrorCode::kExhausted,
                "{}: {} may use {:.2f} GiB, needed are {}; a lower --max-seq or --slots needs less", name_,
                facts.name, gib(facts.working_set_bytes), plan);
  }
  log::info("{}: {} of {:.2f} GiB", name_, plan, gib(facts.working_set_bytes));
  LILY_TRY_VOID(weight_arena_.allocate(*device_, "weights"));
  LILY_TRY_VOID(state_arena_.allocate(*device_, "K/V pages and recurrent states"));
  LILY_TRY_VOID(scratch_arena_.allocate(*device_, "scratch"));
  place();
  const auto start = std::chrono::steady_clock::now();
  device_weights_->copies.run();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  log::info("{}: weights in place after {:.1f} s", name_, seconds.count());
  return {};
}

std::string MetalBackend::description() const {
  return fmt::format("{} ({})", name_, device_->facts().name);
}

std::int64_t MetalBackend::host_bytes() const {
  return state_arena_.used() + scratch_arena_.used();
}

void MetalBackend::check(const Segment& segment) const {
  LILY_CHECK(segment.phase == Phase::kPrefill || segment.rows() == 1, "decoding {} rows", segment.rows());
  LILY_CHECK(segment.slot >= 0 && segment.slot < limits_.slots, "slot {} of {}", segment.slot, limits_.slots);
  const std::int64_t needed = (segment.position + segment.rows() + kKvPageTokens - 1) / kKvPageTokens;
  LILY_CHECK(static_cast<std::int64_t>(segment.pages.size()) >= needed, "{} pages for {} tokens",
             segment.pages.size(), segment.position + segment.rows());
  for (const PageId page : segment.pages)
    LILY_CHECK(page >= 0 && page < limits_.kv_pages, "page {} of {}", page, limits_.kv_pages);
  for (const TokenId token : segment.tokens)
    LILY_CHECK(token >= 0 && token < s_.vocab, "token {} of {}", token, s_.vocab);
}

void MetalBackend::begin(const Batch& batch) {
  LILY_CHECK(batch.rows() <= limits_.max_rows, "step of {} rows, limit {}", batch.rows(), limits_.max_rows);
  (void)encoder_.finish();  // of a step that was given up
  batch_ = batch;
  status_ = {};
  prefill_.clear();
  decode_.clear();
  first_rows_.clear();
  for (const Segment& segment : batch.segments) {
    check(segment);
    if (segment.rows() > 0) (segment.phase == Phase::kPrefill ? prefill_ : decode_).add(segment);
  }
  prefill_.close();
  std::int64_t prefill_row = 0;
  std::int64_t decode_row = prefill_rows();
  int* wanted = scratch_.wanted.as<int>();
  for (const Segment& segment : batch.segments) {
    std::int64_t& next = segment.phase == Phase::kPrefill ? prefill_row : decode_row;
    first_rows_.push_back(next);
    for (std::int64_t i = 0; i < segment.rows(); ++i) {
      if (segment.logits == Logits::kAll || (segment.logits == Logits::kLast && i + 1 == segment.rows()))
        *wanted++ = static_cast<int>(next + i);
    }
    next += segment.rows();
  }
}

Result<void> MetalBackend::finish() {
  auto done = encoder_.finish();
  if (status_.ok()) status_ = std::move(done);
  return status_;
}

void MetalBackend::read_residual(std::span<float> out) {
  LILY_CHECK(static_cast<std::int64_t>(out.size()) == batch_.rows() * s_.hidden, "{} floats for {} rows",
             out.size(), batch_.rows());
  (void)finish();  // an error is kept for the step's own finish()
  for (std::size_t i = 0; i < batch_.segments.size(); ++i) {
    const auto count = static_cast<std::size_t>(batch_.segments[i].rows() * s_.hidden);
    std::copy_n(scratch_.residual.as<float>() + first_rows_[i] * s_.hidden, count, out.begin());
    out = out.subspan(count);
  }
}

void MetalBackend::zero_slot(SlotId slot) {
  std::memset(slot_at(slot), 0, static_cast<std::size_t>(slot_bytes()));
}
void MetalBackend::copy_slot(SlotId from, SlotId to) {
  std::memcpy(slot_at(to), slot_at(from), static_cast<std::size_t>(slot_bytes()));
}
void MetalBackend::copy_page(PageId from, PageId to) {
  std::memcpy(page_at(to), page_at(from), static_cast<std::size_t>(page_bytes()));
}
void MetalBackend::read_slot(SlotId slot, std::span<std::byte> out) {
  LILY_CHECK(static_cast<std::int64_t>(out.size()) == slot_bytes(), "{} bytes for {}", out.size(),
             slot_bytes());
  std::memcpy(out.data(), slot_at(slot), out.size());
}
void MetalBackend::write_slot(SlotId slot, std::span<const std::byte> in) {
  LILY_CHECK(static_cast<std::int64_t>(in.size()) == slot_bytes(), "{} bytes for {}", in.size(),
             slot_bytes());
  std::memcpy(slot_at(slot), in.data(), in.size());
}
void MetalBackend::read_page(PageId page, std::span<std::byte> out) {
  LILY_CHECK(static_cast<std::int64_t>(out.size()) == page_bytes(), "{} bytes for {}", out.size(),
             page_bytes());
  std::memcpy(out.data(), page_at(page), out.size());
}
void MetalBackend::write_page(PageId page, std::span<const std::byte> in) {
  LILY_CHECK(static_cast<std::int64_t>(in.size()) == page_bytes(), "{} bytes for {}", in.size(),
             page_bytes());
  std::memcpy(page_at(page), in.data(), in.size());
}

}  // namespace lily::metal

namespace lily {

bool has_metal_backend(std::string_view name) {
  return name == "metal" ? metal::has_metal_device() : metal::has_emulated_device();
}

Result<std::unique_ptr<Backend>> make_metal_backend(const BackendOptions& options,
                                                    const ModelWeights& weights,
                                                    const BackendLimits& limits) {
  LILY_TRY(const KvType kv_type, parse_kv_type(options.kv_type, KvType::kBf16));
  if (kv_type != KvType::kBf16) {
    return fail(ErrorCode::kUnsupported, "{}: kv-type {}: K and V are kept in bf16", options.name,
                kv_type_name(kv_type));
  }
  LILY_TRY(auto device, options.name == "metal" ? metal::make_metal_device() : metal::make_emulated_device());
  return metal::MetalBackend::create(options.name, std::move(device), weights, limits);
}

}  // namespace lily
