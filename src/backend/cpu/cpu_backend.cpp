// The CPU backend's memory, the embedding and the head.
#include "backend/cpu/cpu_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string_view>
#include <utility>

#include "backend/cpu/arithmetic.h"
#include "backend/cpu/isa.h"

namespace lily::cpu {
namespace {

// Names of ablations; kAbove is followed by the kernels that are used in place of better ones.
constexpr std::string_view kAbove = "above-";
constexpr const char* kIntegerActivations = "integer-activations";
constexpr const char* kThreads = "threads";
constexpr const char* kBf16Kv = "bf16-kv";

std::int64_t widest_input(const Shapes& s) {
  return std::max(
      {s.hidden, s.linear_value_dim(), s.query_dim(), s.expert_width, s.shared_width, s.dense_width});
}

std::int64_t projected_width(const Shapes& s) {
  const std::int64_t recurrent = s.conv_channels() + s.linear_value_dim() + 2 * s.linear_value_heads;
  const std::int64_t attention = 2 * s.query_dim() + 2 * s.kv_dim();
  return std::max(recurrent, attention);
}

/// [C, 4] as stored to [4, C], so that the convolution runs along channels.
Buffer<float> transpose_taps(const Vector& taps) {
  const auto channels = static_cast<std::int64_t>(taps.size()) / kConvKernel;
  Buffer<float> out(channels * kConvKernel);
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t j = 0; j < kConvKernel; ++j) {
      out[j * channels + c] = taps[static_cast<std::size_t>(c * kConvKernel + j)];
    }
  }
  return out;
}

}  // namespace

CpuBackend::CpuBackend(const Settings& settings, const ModelWeights& weights, const BackendLimits& limits,
                       StateMemory memory)
    : kernels_(settings.kernels),
      attend_(attend_of(kernels_, memory.kv_type())),
      exact_(settings.exact),
      weights_(weights),
      s_(weights.shapes),
      limits_(limits),
      slot_bytes_(memory.slots().item_bytes()),
      page_bytes_(memory.pages().item_bytes()),
      memory_(std::move(memory)),
      pool_(settings.threads, settings.pin_threads),
      products_(kernels_, pool_, widest_input(s_), exact_),
      step_(s_, limits.max_rows),
      residual_(limits.max_rows * s_.hidden),
      input_(kernels_, limits.max_rows, s_.hidden, exact_),
      projected_(limits.max_rows * projected_width(s_)),
      mixed_(kernels_, limits.max_rows, std::max(s_.linear_value_dim(), s_.query_dim()), exact_),
      router_(limits.max_rows * s_.experts),
      shared_gate_(limits.max_rows),
      chosen_(limits.max_rows * s_.experts_per_token),
      chosen_weights_(limits.max_rows * s_.experts_per_token),
      lists_{.prefill = ExpertLists(s_.experts, limits.max_rows, s_.experts_per_token, kernels_.token_tile),
             .decode = ExpertLists(s_.experts, limits.max_rows, s_.experts_per_token, 1)},
      all_rows_(std::max(limits.max_rows, lists_.prefill.max_entries())),
      expanded_(kernels_, lists_.prefill.max_entries(), s_.expert_width, exact_),
      dense_expanded_(kernels_, limits.max_rows, std::max(s_.shared_width, s_.dense_width), exact_) {
  std::iota(all_rows_.data(), all_rows_.data() + all_rows_.size(), 0);
  for (int thread = 0; thread < pool_.size(); ++thread) {
    scratch_.push_back({.attention = Buffer<float>(attend_scratch()),
                        .queries = Buffer<float>(kAttentionQueries * kHeadDim),
                        .sums = Buffer<float>(kAttentionQueries * kHeadDim),
                        .gate = Buffer<float>(kMoeTokens * kExpandColumns),
                        .up = Buffer<float>(kMoeTokens * kExpandColumns)});
  }
  for (const LayerWeights& layer : weights.layers) {
    if (const auto* recurrent = std::get_if<RecurrentWeights>(&layer.mixer)) {
      conv_taps_.push_back(transpose_taps(recurrent->conv1d));
    }
  }
}

std::string CpuBackend::description() const {
  return fmt::format("cpu ({}, {} thread{}, {} activations, {} K/V)", kernels_.description, pool_.size(),
                     pool_.size() == 1 ? "" : "s", exact_ ? "f32" : "integer",
                     kv_type_name(memory_.kv_type()));
}

std::optional<double> CpuBackend::measure_arithmetic() {
  return measure_multiply_rate(exact_ ? kernels_.multiply_registers_exact : kernels_.multiply_registers,
                               pool_);
}

std::vector<Ablation> CpuBackend::ablations() const {
  std::vector<Ablation> list;
  if (!exact_) list.push_back({kIntegerActivations, "f32 activations and weights, as --exact has them"});
  bool below = false;  // the kernels in use are behind us in the list, which is best first
  for (const Kernels* other : usable_kernels()) {
    if (below) {
      list.push_back({std::string(kAbove) + other->isa,
                      fmt::format("{} in place of {}", other->description, kernels_.description)});
    }
    below = below || other == &kernels_;
  }
  if (pool_.size() > 1) list.push_back({kThreads, fmt::format("1 thread in place of {}", pool_.size())});
  if (memory_.kv_type() == KvType::kBf16) list.push_back({kBf16Kv, "K and V rows in f32"});
  return list;
}

Result<BackendOptions> options_without(BackendOptions options) {
  const std::string without = std::exchange(options.without, "");
  if (without.starts_with(kAbove)) {
    options.isa = without.substr(kAbove.size());
  } else if (without == kIntegerActivations) {
    options.exact = true;
    if (options.kv_type == "auto") options.kv_type = "bf16";  // as it was, so that one thing changes
  } else if (without == kThreads) {
    options.threads = 1;
  } else if (without == kBf16Kv) {
    options.kv_type = "f32";
  } else if (!without.empty()) {
    return fail(ErrorCode::kInvalidArgument, "cpu: without '{}': expected one of its ablations", without);
  }
  return options;
}

void CpuBackend::begin(const Batch& batch) {
  for (const Segment& segment : batch.segments) {
    LILY_CHECK(segment.slot >= 0 && segment.slot < limits_.slots, "slot {} of {}", segment.slot,
               limits_.slots);
    const std::int64_t needed = (segment.position + segment.rows() + kKvPageTokens - 1) / kKvPageTokens;
    LILY_CHECK(static_cast<std::int64_t>(segment.pages.size()) >= needed, "{} pages for {} tokens",
               segment.pages.size(), segment.position + segment.rows());
    for (const PageId page : segment.pages) {
      LILY_CHECK(page >= 0 && page < limits_.kv_pages, "page {} of {}", page, limits_.kv_pages);
    }
    for (const TokenId token : segment.tokens) {
      LILY_CHECK(token >= 0 && token < s_.vocab, "token {} of {}", token, s_.vocab);
    }
  }
  step_.begin(batch);
}

PerPhase<std::int64_t> CpuBackend::counts(std::int64_t per_row) const {
  return {.prefill = step_.count(Phase::kPrefill) * per_row, .decode = step_.count(Phase::kDecode) * per_row};
}

void CpuBackend::norm_rows(const Vector& gain) {
  input_.shape(s_.hidden, counts());
  pool_.parallel_for(step_.rows(), 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const Phase phase = step_.phase(row);
      const std::int64_t index = row - step_.first(phase);
      float* out = input_.values(phase, index);
      kernels_.rms_norm(residual(row), gain.data(), s_.rms_norm_eps, s_.hidden, out);
      input_.quantize(phase, index, 0, s_.hidden, out);
    }
  });
}

void CpuBackend::embed(const EmbedBlock& block) {
  const QuantizedMatrix& m = block.embed_tokens;
  pool_.parallel_for(step_.rows(), 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t token = step_.token(row);
      kernels_.dequantize({.weight = m.weight + token * m.row_bytes(),
                           .scales = m.scales + token * m.groups() * 2,
                           .biases = m.biases + token * m.groups() * 2,
                           .in = m.in,
                           .bits = m.bits,
                           .group_size = m.group_size,
                           .out = residual(row)});
    }
  });
}

// Only the wanted rows are normed and multiplied, each by the phase of its segment.
void CpuBackend::head(const HeadBlock& block) {
  PerPhase<std::vector<std::int32_t>> wanted;   // rows, within the phase
  PerPhase<std::vector<std::int32_t>> outputs;  // rows of the logits
  std::int32_t next = 0;
  for (const StepSegment& placed : step_.segments()) {
    const auto first = static_cast<std::int32_t>(placed.first_row - step_.first(placed.segment.phase));
    const auto rows = static_cast<std::int32_t>(placed.segment.rows());
    const std::int32_t skipped = placed.segment.logits == Logits::kAll    ? 0
                                 : placed.segment.logits == Logits::kLast ? std::max(rows - 1, 0)
                                                                          : rows;
    for (std::int32_t i = skipped; i < rows; ++i) {
      wanted[placed.segment.phase].push_back(first + i);
      outputs[placed.segment.phase].push_back(next++);
    }
  }
  if (next == 0) return;
  LILY_CHECK(static_cast<std::int64_t>(block.logits.size()) == next * s_.vocab, "{} floats for {} rows of {}",
             block.logits.size(), next, s_.vocab);

  input_.shape(s_.hidden, {.prefill = static_cast<std::int64_t>(wanted.prefill.size()),
                           .decode = static_cast<std::int64_t>(wanted.decode.size())});
  for (const Phase phase : kPhases) {
    pool_.parallel_for(input_.rows(phase), 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t row = step_.first(phase) + wanted[phase][static_cast<std::size_t>(i)];
        float* out = input_.values(phase, i);
        kernels_.rms_norm(residual(row), block.norm.data(), s_.rms_norm_eps, s_.hidden, out);
        input_.quantize(phase, i, 0, s_.hidden, out);
      }
    });
  }
  pool_.parallel_for(s_.vocab, kRowBlock, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t row = begin; row < end; row += kRowBlock) {
      for (const Phase phase : kPhases) {
        products_.compute(input_, phase,
                          {.matrix = block.lm_head,
                           .row_begin = row,
                           .row_end = std::min(row + kRowBlock, end),
                           .count = input_.rows(phase),
                           .out = block.logits.data(),
                           .out_stride = s_.vocab,
                           .out_rows = outputs[phase].data()},
                          thread);
      }
    }
  });
}

void CpuBackend::read_residual(std::span<float> out) {
  LILY_CHECK(static_cast<std::int64_t>(out.size()) == step_.rows() * s_.hidden, "{} floats for {} rows",
             out.size(), step_.rows());
  float* next = out.data();
  for (const StepSegment& placed : step_.segments()) {
    const std::int64_t count = placed.segment.rows() * s_.hidden;
    next = std::copy_n(residual(placed.first_row), count, next);
  }
}

std::int64_t CpuBackend::host_bytes() const {
  std::int64_t bytes = memory_.bytes() + residual_.bytes() + input_.bytes() + projected_.bytes() +
                       mixed_.bytes() + router_.bytes() + expanded_.bytes() + dense_expanded_.bytes();
  for (const ThreadScratch& scratch : scratch_) {
    bytes += scratch.attention.bytes() + scratch.queries.bytes() + scratch.sums.bytes() +
             scratch.gate.bytes() + scratch.up.bytes();
  }
  return bytes;
}

void CpuBackend::zero_slot(SlotId slot) {
  std::memset(memory_.slots().item(slot), 0, static_cast<std::size_t>(slot_bytes_));
}
void CpuBackend::copy_slot(SlotId from, SlotId to) {
  std::memmove(memory_.slots().item(to), memory_.slots().item(from), static_cast<std::size_t>(slot_bytes_));
}
void CpuBackend::copy_page(PageId from, PageId to) {
  std::memmove(memory_.pages().item(to), memory_.pages().item(from), static_cast<std::size_t>(page_bytes_));
}

namespace {
void copy_out(std::span<std::byte> out, const std::byte* item, std::int64_t bytes) {
  LILY_CHECK(static_cast<std::int64_t>(out.size()) == bytes, "{} bytes for {}", out.size(), bytes);
  std::memcpy(out.data(), item, out.size());
}
void copy_in(std::byte* item, std::span<const std::byte> in, std::int64_t bytes) {
  LILY_CHECK(static_cast<std::int64_t>(in.size()) == bytes, "{} bytes for {}", in.size(), bytes);
  std::memcpy(item, in.data(), in.size());
}
}  // namespace

void CpuBackend::read_slot(SlotId slot, std::span<std::byte> out) {
  copy_out(out, memory_.slots().item(slot), slot_bytes_);
}
void CpuBackend::write_slot(SlotId slot, std::span<const std::byte> in) {
  copy_in(memory_.slots().item(slot), in, slot_bytes_);
}
void CpuBackend::read_page(PageId page, std::span<std::byte> out) {
  copy_out(out, memory_.pages().item(page), page_bytes_);
}
void CpuBackend::write_page(PageId page, std::span<const std::byte> in) {
  copy_in(memory_.pages().item(page), in, page_bytes_);
}

namespace {

/// The kernels know up to 8 value heads a key head and 64 query heads a KV head.
Result<void> check_supported(const ModelWeights& weights) {
  const Shapes& s = weights.shapes;
  const std::int64_t value_heads = s.linear_key_heads > 0 ? s.linear_value_heads / s.linear_key_heads : 0;
  const std::int64_t query_heads = s.kv_heads > 0 ? s.query_heads / s.kv_heads : 0;
  if (value_heads > kMostValueHeads || query_heads > kAttentionQueries) {
    return fail(ErrorCode::kUnsupported,
                "cpu: {} value heads a key head and {} query heads a KV head, at most {} and {}", value_heads,
                query_heads, kMostValueHeads, kAttentionQueries);
  }
  return {};
}

}  // namespace
}  // namespace lily::cpu

namespace lily {

Result<std::unique_ptr<Backend>> make_cpu_backend(const BackendOptions& given, const ModelWeights& weights,
                                                  const BackendLimits& limits) {
  LILY_TRY(const BackendOptions options, cpu::options_without(given));
  LILY_TRY(const cpu::Kernels* kernels, cpu::select_kernels(options.isa));
  if (options.threads < 0) {
    return fail(ErrorCode::kInvalidArgument, "threads: {}, expected 0 (all cores) or more", options.threads);
  }
  LILY_TRY_VOID(cpu::check_supported(weights));
  LILY_TRY(const KvType kv_type,
           parse_kv_type(options.kv_type, options.exact ? KvType::kF32 : KvType::kBf16));
  LILY_TRY(cpu::StateMemory memory, cpu::StateMemory::reserve(weights.shapes, limits, kv_type));
  const int threads = options.threads > 0 ? options.threads : available_cores();
  return std::unique_ptr<Backend>(std::make_unique<cpu::CpuBackend>(
      cpu::CpuBackend::Settings{*kernels, threads, options.pin_threads, options.exact}, weights, limits,
      std::move(memory)));
}

}  // namespace lily
