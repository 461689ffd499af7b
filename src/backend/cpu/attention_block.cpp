// The gated full-attention block: stacked projections, cache write, attention over the pages, output gate.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "backend/cpu/cpu_backend.h"

namespace lily::cpu {
namespace {

constexpr float kScoreScale = 1.0F / 16.0F;  // 1 / sqrt(256)
static_assert(kHeadDim == 256 && kKvPageTokens == 256);

// Columns of projected_: per query head D query and D gate columns, then k [Nkv D], v [Nkv D].
struct Columns {
  explicit Columns(const Shapes& s) : k(2 * s.query_dim()), v(k + s.kv_dim()), width(v + s.kv_dim()) {}
  std::int64_t k;
  std::int64_t v;
  std::int64_t width;
};

std::int64_t padded(std::int64_t queries) {
  return (queries + 7) / 8 * 8;
}

}  // namespace

void CpuBackend::attention_block(const AttentionBlock& block) {
  const AttentionWeights& w = block.weights;
  const Columns columns(s_);
  float* out = projected_.data();
  norm_rows(w.input_layernorm);
  products_.project(input_, std::array{Projection{w.q_proj, out, columns.width},
                                       Projection{w.k_proj, out + columns.k, columns.width},
                                       Projection{w.v_proj, out + columns.v, columns.width}});
  mixed_.shape(s_.query_dim(), counts());
  store_keys_and_values(block);
  attend_prefill(block);
  attend_decode(block);
  products_.project(mixed_, std::array{Projection{w.o_proj, residual_.data(), s_.hidden, true}});
}

// Norm and rotation of queries (in place) and keys, and the new rows of the cache. One task a row and KV
// head.
void CpuBackend::store_keys_and_values(const AttentionBlock& block) {
  const AttentionWeights& w = block.weights;
  const Columns columns(s_);
  for (const StepSegment& placed : step_.segments()) {
    const Segment& segment = placed.segment;
    pool_.parallel_for(segment.rows() * s_.kv_heads, 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t kv_head = task % s_.kv_heads;
        const std::int64_t row = placed.first_row + task / s_.kv_heads;
        float* x = projected_.data() + row * columns.width;
        for (std::int64_t head = kv_head * group_size(); head < (kv_head + 1) * group_size(); ++head) {
          kernels_.head_norm({x + 2 * head * kHeadDim, w.q_norm.data(), s_.rms_norm_eps, step_.cosine(row),
                              step_.sine(row)});
        }
        float* k = x + columns.k + kv_head * kHeadDim;
        kernels_.head_norm({k, w.k_norm.data(), s_.rms_norm_eps, step_.cosine(row), step_.sine(row)});

        const std::int64_t position = segment.position + task / s_.kv_heads;
        const PageId page = segment.pages[static_cast<std::size_t>(position / kKvPageTokens)];
        const std::int64_t at = page * memory_.page_stride();
        const KvType type = memory_.kv_type();
        const std::int64_t index = position % kKvPageTokens;
        kernels_.store_kv(
            {k, type, false, memory_.blocks(block.attention_index, false, kv_head) + at, index});
        kernels_.store_kv({x + columns.v + kv_head * kHeadDim, type, true,
                           memory_.blocks(block.attention_index, true, kv_head) + at, index});
      }
    });
  }
}

AttendArgs CpuBackend::attend_args(const AttentionBlock& block, const Segment& segment, std::int64_t kv_head,
                                   int thread) {
  AttendArgs args{};
  args.keys = memory_.blocks(block.attention_index, false, kv_head);
  args.values = memory_.blocks(block.attention_index, true, kv_head);
  args.page_stride = memory_.page_stride();
  args.pages = segment.pages.data();
  args.scratch = scratch_[static_cast<std::size_t>(thread)].attention.data();
  return args;
}

/// The query heads of one row that share `kv_head`, scaled, as [group, D].
void CpuBackend::gather_queries(std::int64_t row, std::int64_t kv_head, float* out) {
  const float* x = projected_.data() + row * Columns(s_).width;
  for (std::int64_t head = kv_head * group_size(); head < (kv_head + 1) * group_size(); ++head) {
    for (std::int64_t d = 0; d < kHeadDim; ++d) *out++ = x[2 * head * kHeadDim + d] * kScoreScale;
  }
}

/// sums / total through the output gate, into the block's output.
void CpuBackend::finish_query(std::int64_t row, std::int64_t head, const float* sums, float total) {
  const Phase phase = step_.phase(row);
  const std::int64_t index = row - step_.first(phase);
  const float* gate = projected_.data() + row * Columns(s_).width + (2 * head + 1) * kHeadDim;
  float* out = mixed_.values(phase, index) + head * kHeadDim;
  kernels_.gate_output(sums, 1.0F / total, gate, kHeadDim, out);
  mixed_.quantize(phase, index, head * kHeadDim, kHeadDim, out);
}

// Tasks are blocks of rows of one segment and one KV head; the longest (last rows) first.
void CpuBackend::attend_prefill(const AttentionBlock& block) {
  const std::int64_t rows_per_task = kAttentionQueries / group_size();
  attention_tasks_.clear();
  for (const StepSegment& placed : step_.segments()) {
    if (placed.segment.phase != Phase::kPrefill) continue;
    for (std::int64_t begin = 0; begin < placed.segment.rows(); begin += rows_per_task) {
      const std::int64_t end = std::min(begin + rows_per_task, placed.segment.rows());
      attention_tasks_.push_back({.placed = &placed, .begin = begin, .end = end, .slot = 0});
    }
  }
  const auto tasks = static_cast<std::int64_t>(attention_tasks_.size());
  pool_.parallel_tasks(tasks * s_.kv_heads, [&](std::int64_t task, int thread) {
    const std::int64_t index = tasks - 1 - task / s_.kv_heads;
    attend_rows(block, attention_tasks_[static_cast<std::size_t>(index)], task % s_.kv_heads, thread);
  });
}

void CpuBackend::attend_rows(const AttentionBlock& block, const AttentionTask& task, std::int64_t kv_head,
                             int thread) {
  const Segment& segment = task.placed->segment;
  ThreadScratch& scratch = scratch_[static_cast<std::size_t>(thread)];
  const std::int64_t group = group_size();
  AttendArgs args = attend_args(block, segment, kv_head, thread);
  args.count = (task.end - task.begin) * group;
  std::array<std::int64_t, kAttentionQueries> positions{};
  std::array<float, kAttentionQueries> largest{};
  std::array<float, kAttentionQueries> total{};
  largest.fill(-std::numeric_limits<float>::infinity());
  std::fill_n(scratch.sums.data(), padded(args.count) * kHeadDim, 0.0F);
  std::fill_n(scratch.queries.data() + args.count * kHeadDim, (padded(args.count) - args.count) * kHeadDim,
              0.0F);
  for (std::int64_t i = task.begin; i < task.end; ++i) {
    const std::int64_t query = (i - task.begin) * group;
    gather_queries(task.placed->first_row + i, kv_head, scratch.queries.data() + query * kHeadDim);
    std::fill_n(positions.begin() + query, group, segment.position + i);
  }
  args.queries = scratch.queries.data();
  args.positions = positions.data();
  args.begin = 0;
  args.end = segment.position + task.end;
  args.largest = largest.data();
  args.total = total.data();
  args.sums = scratch.sums.data();
  attend_(args);
  for (std::int64_t query = 0; query < args.count; ++query) {
    finish_query(task.placed->first_row + task.begin + query / group, kv_head * group + query % group,
                 args.sums + query * kHeadDim, total[static_cast<std::size_t>(query)]);
  }
}

CpuBackend::AttentionState CpuBackend::partial(std::int64_t slot, std::int64_t kv_head) {
  const std::int64_t queries = padded(group_size());
  float* p = partials_.data() + (slot * s_.kv_heads + kv_head) * queries * (kHeadDim + 2);
  return {.largest = p, .total = p + queries, .sums = p + 2 * queries};
}

// A row attends to each page on its own, whatever the number of threads, and the parts are joined in order.
void CpuBackend::attend_decode(const AttentionBlock& block) {
  attention_tasks_.clear();
  std::int64_t slots = 0;
  for (const StepSegment& placed : step_.segments()) {
    if (placed.segment.phase != Phase::kDecode) continue;
    const std::int64_t rows = placed.segment.position + 1;
    for (std::int64_t begin = 0; begin < rows; begin += kKvPageTokens) {
      const std::int64_t end = std::min(begin + kKvPageTokens, rows);
      attention_tasks_.push_back({.placed = &placed, .begin = begin, .end = end, .slot = slots++});
    }
  }
  if (slots == 0) return;
  partials_.reserve(slots * s_.kv_heads * padded(group_size()) * (kHeadDim + 2));
  pool_.parallel_tasks(slots * s_.kv_heads, [&](std::int64_t task, int thread) {
    attend_range(block, attention_tasks_[static_cast<std::size_t>(task / s_.kv_heads)], task % s_.kv_heads,
                 thread);
  });
  std::int64_t first = 0;
  for (const StepSegment& placed : step_.segments()) {
    if (placed.segment.phase != Phase::kDecode) continue;
    const std::int64_t pages = placed.segment.position / kKvPageTokens + 1;
    pool_.parallel_for(s_.kv_heads, 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t h = begin; h < end; ++h) join_ranges(placed.first_row, first, pages, h);
    });
    first += pages;
  }
}

void CpuBackend::attend_range(const AttentionBlock& block, const AttentionTask& task, std::int64_t kv_head,
                              int thread) {
  ThreadScratch& scratch = scratch_[static_cast<std::size_t>(thread)];
  const std::int64_t group = group_size();
  const std::int64_t queries = padded(group);
  const AttentionState state = partial(task.slot, kv_head);
  std::fill_n(state.largest, group, -std::numeric_limits<float>::infinity());
  std::fill_n(state.total, group, 0.0F);
  std::fill_n(state.sums, queries * kHeadDim, 0.0F);
  std::fill_n(scratch.queries.data() + group * kHeadDim, (queries - group) * kHeadDim, 0.0F);
  gather_queries(task.placed->first_row, kv_head, scratch.queries.data());
  std::array<std::int64_t, kAttentionQueries> positions{};
  std::fill_n(positions.begin(), group, task.placed->segment.position);

  AttendArgs args = attend_args(block, task.placed->segment, kv_head, thread);
  args.queries = scratch.queries.data();
  args.count = group;
  args.positions = positions.data();
  args.begin = task.begin;
  args.end = task.end;
  args.largest = state.largest;
  args.total = state.total;
  args.sums = state.sums;
  attend_(args);
}

void CpuBackend::join_ranges(std::int64_t row, std::int64_t first_slot, std::int64_t slots,
                             std::int64_t kv_head) {
  for (std::int64_t query = 0; query < group_size(); ++query) {
    float largest = -std::numeric_limits<float>::infinity();
    for (std::int64_t i = 0; i < slots; ++i) {
      largest = std::max(largest, partial(first_slot + i, kv_head).largest[query]);
    }
    float total = 0;
    std::array<float, kHeadDim> sums{};
    for (std::int64_t i = 0; i < slots; ++i) {
      const AttentionState state = partial(first_slot + i, kv_head);
      const float factor = std::exp(state.largest[query] - largest);
      total += factor * state.total[query];
      const float* part = state.sums + query * kHeadDim;
      for (std::size_t d = 0; d < sums.size(); ++d) sums[d] += factor * part[d];
    }
    finish_query(row, kv_head * group_size() + query, sums.data(), total);
  }
}

}  // namespace lily::cpu
