#include "backend/metal/scratch.h"

#include <algorithm>

#include "backend/metal/kernels/kernels.h"

namespace lily::metal {
namespace {

std::int64_t widest_projection(const DeviceWeights& weights) {
  std::int64_t width = 0;
  for (const LayerOnDevice& layer : weights.layers)
    width = std::max(width, std::visit([](const auto& mixer) { return mixer.in_proj.out; }, layer.mixer));
  return width;
}

DecodeScratch place_decode(Arena& arena, const Shapes& s, const DeviceWeights& weights, std::int64_t rows) {
  const std::int64_t tiles = s.kv_heads * ((s.query_heads / s.kv_heads + kQueryTile - 1) / kQueryTile);
  const std::int64_t partials = rows * tiles * kMaxRanges * kQueryTile;
  return {.projected = arena.take<float>(rows * widest_projection(weights)),
          .mixed = arena.take<float>(rows * std::max(s.query_dim(), s.linear_value_dim())),
          .squares = arena.take<float>(rows * s.linear_value_heads * kDeltaParts),
          .query = arena.take<std::uint16_t>(s.kv_heads * query_rows(s, rows) * kHeadDim),
          .partial = arena.take<float>(partials * kHeadDim),
          .stats = arena.take<float>(partials * 2),
          .logits = arena.take<float>(rows * (s.experts + 1)),
          .shared = arena.take<float>(rows * std::max(s.shared_width, s.dense_width)),
          .expanded = arena.take<float>(rows * s.experts_per_token * s.expert_width),
          .chosen = arena.take<int>(rows * s.experts_per_token),
          .weights = arena.take<float>(rows * s.experts_per_token)};
}

PrefillScratch place_prefill(Arena& arena, const Shapes& s, const DeviceWeights& weights,
                             const StepLimits& limits) {
  using Half = std::uint16_t;
  const std::int64_t rows = limits.prefill_rows;
  const std::int64_t choices = rows * s.experts_per_token;
  const std::int64_t chunk_rows = limits.prefill_chunks * kDeltaChunk;
  const std::int64_t chunk_head_rows = chunk_rows * s.linear_value_heads;
  return {.normed = arena.take<Half>(rows * s.hidden),
          .projected = arena.take<float>(rows * widest_projection(weights)),
          .mixed = arena.take<Half>(rows * std::max(s.query_dim(), s.linear_value_dim())),
          .query = arena.take<float>(chunk_rows * s.linear_key_dim()),
          .key = arena.take<float>(chunk_rows * s.linear_key_dim()),
          .value = arena.take<float>(chunk_rows * s.linear_value_dim()),
          .gates = arena.take<float>(chunk_head_rows * 2),
          .u = arena.take<float>(chunk_head_rows * kLinearDim),
          .w = arena.take<float>(chunk_head_rows * kLinearDim),
          .p = arena.take<float>(chunk_head_rows * kDeltaChunk),
          .sums = arena.take<float>(chunk_head_rows),
          .attention_query = arena.take<Half>(s.kv_heads * query_rows(s, rows) * kHeadDim),
          .logits = arena.take<float>(rows * (s.experts + 1)),
          .chosen = arena.take<int>(choices),
          .place = arena.take<int>(choices),
          .weights = arena.take<float>(choices),
          .share = arena.take<float>(rows),
          .counts = arena.take<int>(kMaxExperts),
          .first = arena.take<int>(kMaxExperts),
          .tiles = arena.take<Tile>(most_tiles(s, rows)),
          .row_index = arena.take<int>(choices),
          .row_weight = arena.take<float>(choices),
          .expanded = arena.take<Half>(choices * s.expert_width),
          .expert_out = arena.take<Half>(choices * s.hidden),
          .shared = arena.take<Half>(rows * std::max(s.shared_width, s.dense_width))};
}

CandidateScratch place_candidates(Arena& arena) {
  return {.largest = arena.take<float>(kLogitsRows * kCandidateGroups),
          .bins = arena.take<int>(kLogitsRows * kCandidateBins),
          .counts = arena.take<int>(kLogitsRows),
          .list = arena.take<ListedLogit>(kLogitsRows * kMostCandidates),
          .left_out = arena.take<float>(kLogitsRows * kCandidateParts)};
}

}  // namespace

std::int64_t most_tiles(const Shapes& shapes, std::int64_t rows) {
  return rows * shapes.experts_per_token / kTileRows + shapes.experts;
}
std::int64_t query_rows(const Shapes& shapes, std::int64_t rows) {
  return rows * (shapes.query_heads / shapes.kv_heads) + kQueryTile;
}

Scratch Scratch::place(Arena& arena, const Shapes& s, const DeviceWeights& weights,
                       const StepLimits& limits) {
  const std::int64_t rows = limits.prefill_rows + limits.decode_rows;
  return {.residual = arena.take<float>(rows * s.hidden),
          .wanted = arena.take<int>(rows),
          .logits = arena.take<float>(kLogitsRows * s.vocab),
          .best_values = arena.take<float>(kLogitsRows * kArgmaxGroups),
          .best_indices = arena.take<int>(kLogitsRows * kArgmaxGroups),
          .best = arena.take<int>(kLogitsRows),
          .candidates = place_candidates(arena),
          .decode = place_decode(arena, s, weights, limits.decode_rows),
          .prefill = place_prefill(arena, s, weights, limits)};
}

}  // namespace lily::metal
