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
          .shared = arena.take<float>(rows * s.shared_width),
          .expanded = arena.take<float>(rows * s.experts_per_token * s.expert_width),
          .chosen = arena.take<int>(rows * s.experts_per_token),
          .weights = arena.take<float>(rows * s.experts_per_token)};
}

}  // namespace

std::int64_t query_rows(const Shapes& shapes, std::int64_t rows) {
  return rows * (shapes.query_heads / shapes.kv_heads) + kQueryTile;
}

Scratch Scratch::place(Arena& arena, const Shapes& s, const DeviceWeights& weights, const StepLimits& limits) {
  const std::int64_t rows = limits.prefill_rows + limits.decode_rows;
  return {.residual = arena.take<float>(rows * s.hidden),
          .wanted = arena.take<int>(rows),
          .logits = arena.take<float>(kLogitsRows * s.vocab),
          .best_values = arena.take<float>(kLogitsRows * kArgmaxGroups),
          .best_indices = arena.take<int>(kLogitsRows * kArgmaxGroups),
          .best = arena.take<int>(kLogitsRows),
          .decode = place_decode(arena, s, weights, limits.decode_rows)};
}

}  // namespace lily::metal
