#include "backend/cuda/scratch.h"

#include <algorithm>

namespace lily::cuda {
namespace {

DecodeScratch place_decode(Layout& layout, const Shapes& s, const Scratch& sizes, std::int64_t rows) {
  DecodeScratch d{};
  const auto take_digits = [&](std::int64_t inputs) {
    return layout.take<std::uint8_t>(rows * digits_bytes(static_cast<int>(inputs / kGroup)));
  };
  d.normed = take_digits(s.hidden);
  d.projected = layout.take<float>(rows * sizes.projected_stride);
  d.mixed = take_digits(std::max(s.linear_value_dim(), s.query_dim()));
  d.partial = layout.take<float>(rows * s.kv_heads * kAttentionSplits * kMaxQueryGroup * kHeadDim);
  d.partial_max = layout.take<float>(rows * s.kv_heads * kAttentionSplits * kMaxQueryGroup * 2);
  d.logits = layout.take<float>(rows * sizes.router_stride);
  d.expanded = take_digits(std::max(s.experts_per_token * s.expert_width + s.shared_width, s.dense_width));
  return d;
}

PrefillScratch place_prefill(Layout& layout, const Shapes& s, const Scratch& sizes,
                             const StepLimits& limits) {
  PrefillScratch p{};
  const std::int64_t rows = limits.prefill_rows;
  const std::int64_t choices = rows * s.experts_per_token;
  p.normed = layout.take<__nv_bfloat16>(rows * s.hidden);
  p.projected = layout.take<__nv_bfloat16>(rows * sizes.projected_stride);
  p.mixed = layout.take<__nv_bfloat16>(rows * std::max(s.linear_value_dim(), s.query_dim()));
  p.query = layout.take<float>(rows * s.linear_key_dim());
  p.key = layout.take<float>(rows * s.linear_key_dim());
  p.value = layout.take<float>(rows * s.linear_value_dim());
  p.gates = layout.take<float2>(rows * s.linear_value_heads);
  // A segment's first and last chunk may be partial.
  const std::int64_t chunks = std::min(rows, rows / kChunk + 2 * limits.decode_rows) * s.linear_value_heads;
  for (__nv_bfloat16** part : {&p.chunks.w, &p.chunks.query, &p.chunks.key, &p.chunks.u})
    *part = layout.take<__nv_bfloat16>(chunks * kChunk * kLinearDim);
  p.chunks.p = layout.take<__nv_bfloat16>(chunks * kChunk * kChunk);
  p.chunks.decay = layout.take<float>(chunks);
  p.attention_query = layout.take<__nv_bfloat16>(rows * s.query_dim());
  p.attention_partial_tiles = attention_partial_tiles(
      rows, limits.decode_rows, static_cast<int>(s.query_heads), static_cast<int>(s.kv_heads));
  p.attention_partial =
      layout.take<float>(static_cast<std::int64_t>(p.attention_partial_tiles) * kAttentionPartialFloats);
  p.logits = layout.take<float>(rows * sizes.router_stride);
  p.chosen = layout.take<int>(choices);
  p.place = layout.take<int>(choices);
  p.weight = layout.take<float>(choices);
  p.counts = layout.take<int>(s.experts);
  p.row_index = layout.take<int>(choices);
  p.row_weight = layout.take<float>(choices);
  for (Tile*& tiles : p.dense_tiles) tiles = layout.take<Tile>(most_tiles(static_cast<int>(rows), 1));
  for (int*& count : p.dense_tile_count) count = layout.take<int>(1);
  p.expert_tiles = layout.take<Tile>(most_tiles(static_cast<int>(choices), static_cast<int>(s.experts)));
  p.expert_tile_count = layout.take<int>(1);
  p.expanded = layout.take<__nv_bfloat16>(choices * s.expert_width);
  p.expert_out = layout.take<__nv_bfloat16>(choices * s.hidden);
  p.shared = layout.take<__nv_bfloat16>(rows * std::max(s.shared_width, s.dense_width));
  p.shared_out = layout.take<__nv_bfloat16>(rows * s.hidden);
  return p;
}

}  // namespace

Scratch Scratch::place(Layout& layout, const Shapes& s, const DeviceWeights& weights,
                       const StepLimits& limits) {
  Scratch scratch{};
  for (const LayerOnDevice& layer : weights.layers) {
    const int width = std::visit([](const auto& mixer) { return mixer.in_proj.channels; }, layer.mixer);
    scratch.projected_stride = std::max(scratch.projected_stride, width);
    if (const auto* moe = std::get_if<MoeOnDevice>(&layer.mlp))
      scratch.router_stride = std::max(scratch.router_stride, moe->router.channels);
  }
  scratch.residual = layout.take<float>((limits.prefill_rows + limits.decode_rows) * s.hidden);
  scratch.frequencies = layout.take<double>(kRotary / 2);
  scratch.logits = layout.take<float>(kLogitsRows * s.vocab);
  scratch.best_value = layout.take<float>(kLogitsRows * kArgmaxBlocks);
  scratch.best_index = layout.take<int>(kLogitsRows * kArgmaxBlocks);
  scratch.best = layout.take<int>(kLogitsRows);
  scratch.bins = layout.take<int>(kLogitsRows * kCandidateBins);
  scratch.candidates = layout.take<RowCandidates>(kLogitsRows);
  scratch.decode = place_decode(layout, s, scratch, limits.decode_rows);
  scratch.prefill = place_prefill(layout, s, scratch, limits);
  return scratch;
}

}  // namespace lily::cuda
