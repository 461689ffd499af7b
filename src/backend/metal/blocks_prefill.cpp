// The blocks for prefill rows: which kernels run, on what.
#include <algorithm>

#include "backend/metal/metal_backend.h"

namespace lily::metal {
namespace {

// macOS ends lists that keep the GPU for some seconds, and a list is encoded before the device sees it. From
// this many rows on a layer takes long enough to be a list of its own.
constexpr int kSliceRows = 256;
// The part of the layers that a shorter step hands over first, so that the device works while the others are
// encoded: long enough to keep it busy meanwhile, and the only list more.
constexpr std::int64_t kFirstShare = 8;

std::size_t height_index(int tile_rows) {
  return tile_rows == kTallTileRows ? 1 : 0;
}

}  // namespace

void MetalBackend::end_slice(int layer) {
  const std::int64_t first = std::max<std::int64_t>(1, s_.layers / kFirstShare);
  if (prefill_rows() >= kSliceRows || layer + 1 == first) encoder_.submit();
}

// ---- products

void MetalBackend::norm_prefill_rows(const View& gain) {
  encoder_.use(*pipelines_.norm_rows)
      .read(0, scratch_.residual)
      .constants(1, gain)
      .write(2, scratch_.prefill.normed)
      .value(3, NormArgs{.hidden = static_cast<int>(s_.hidden), .eps = s_.rms_norm_eps})
      .dispatch({.x = static_cast<std::uint32_t>(prefill_rows())}, kRowThreads);
}

void MetalBackend::multiply(const Pipelines::ByBitsAndHeight& kernel, const Matrix& matrix, const Product& p,
                            std::int64_t out_stride) {
  const bool indexed = p.index.buffer != nullptr;
  const bool weighted = p.weight.buffer != nullptr;
  encoder_.use(*kernel[bits_index(matrix.bits)][height_index(p.tile_rows)])
      .read(0, p.input)
      .read(1, indexed ? p.index : p.input)
      .read(2, p.tiles);
  bind(3, matrix);
  (p.is_part ? encoder_.write_part(6, p.out) : encoder_.write(6, p.out))
      .read(7, weighted ? p.weight : p.input)
      .value(8, GemmArgs{.in = static_cast<int>(matrix.in),
                         .out = static_cast<int>(matrix.out),
                         .out_stride = static_cast<int>(out_stride),
                         .indexed = indexed ? 1 : 0,
                         .weighted = weighted ? 1 : 0})
      .dispatch({.x = static_cast<std::uint32_t>(p.tile_count), .y = groups_of(kTileColumns, matrix.out)},
                kTileThreads);
}

void MetalBackend::multiply_gated(const Matrix& gate, const Matrix& up, const Product& p) {
  const bool indexed = p.index.buffer != nullptr;
  encoder_.use(*pipelines_.gemm_gated[bits_index(gate.bits)][bits_index(up.bits)][height_index(p.tile_rows)])
      .read(0, p.input)
      .read(1, indexed ? p.index : p.input)
      .read(2, p.tiles);
  bind(3, gate);
  bind(6, up);
  encoder_.write(9, p.out)
      .value(10, GemmArgs{.in = static_cast<int>(gate.in),
                          .out = static_cast<int>(gate.out),
                          .out_stride = static_cast<int>(gate.out),
                          .indexed = indexed ? 1 : 0,
                          .weighted = 0})
      .dispatch({.x = static_cast<std::uint32_t>(p.tile_count), .y = groups_of(kTileColumns / 2, gate.out)},
                kTileThreads);
}

void MetalBackend::project_prefill(const Stack& stack, const View& out) {
  for (const Stack::Part& part : stack.parts) {
    Product p = dense(scratch_.prefill.normed, out.from(part.first * 4));
    p.is_part = true;
    multiply(pipelines_.gemm_store, part.matrix, p, stack.out);
  }
}

// ---- gated delta rule

void MetalBackend::recurrent_prefill(const RecurrentOnDevice& w, int linear_index) {
  const PrefillScratch& p = scratch_.prefill;
  norm_prefill_rows(w.input_norm);
  project_prefill(w.in_proj, p.projected);
  const DeltaArgs args = delta_args(w, linear_index, prefill_);
  convolve(w, args);
  run_delta_chunks(args);
  encoder_.use(*pipelines_.gated_norm)
      .read(0, p.value)
      .read(1, p.projected)
      .constants(2, w.norm)
      .constants(3, prefill_.chunk_row_of)
      .write(4, p.mixed)
      .value(5, args)
      .dispatch(
          {.x = groups_of(kHeadSimdgroups, args.value_heads), .y = static_cast<std::uint32_t>(args.rows)},
          kHeadSimdgroups * kSimd);
  multiply(pipelines_.gemm_add, w.out_proj, dense(p.mixed, scratch_.residual), s_.hidden);
}

void MetalBackend::convolve(const RecurrentOnDevice& w, const DeltaArgs& args) {
  const PrefillScratch& p = scratch_.prefill;
  encoder_.use(*pipelines_.convolve_rows)
      .read(0, p.projected)
      .constants(1, w.taps)
      .constants(2, w.A_log)
      .constants(3, w.dt_bias)
      .read(4, slots_)
      .constants(5, prefill_.segment_rows)
      .constants(6, prefill_.table)
      .constants(7, prefill_.row_of_chunk_row)
      .write(8, p.query)
      .write(9, p.key)
      .write(10, p.value)
      .write(11, p.gates)
      .value(12, args)
      .dispatch({.x = groups_of(kHeadSimdgroups, args.key_heads + args.value_heads),
                 .y = static_cast<std::uint32_t>(args.chunks * kDeltaChunk)},
                kHeadSimdgroups * kSimd);
  encoder_.use(*pipelines_.keep_rows)
      .read(0, p.projected)
      .write(1, slots_)
      .constants(2, prefill_.segment_rows)
      .value(3, args)
      .dispatch({.x = groups_of(kRowThreads, s_.conv_channels()),
                 .y = static_cast<std::uint32_t>(prefill_.segments())},
                kRowThreads);
}

void MetalBackend::run_delta_chunks(const DeltaArgs& args) {
  const PrefillScratch& p = scratch_.prefill;
  const auto heads = static_cast<std::uint32_t>(args.value_heads);
  encoder_.use(*pipelines_.prepare_chunks)
      .read(0, p.query)
      .read(1, p.key)
      .read(2, p.value)
      .read(3, p.gates)
      .write(4, p.u)
      .write(5, p.w)
      .write(6, p.p)
      .write(7, p.sums)
      .value(8, args)
      .dispatch({.x = static_cast<std::uint32_t>(args.chunks), .y = heads}, kDeltaChunk / 8 * kSimd);
  encoder_.use(*pipelines_.run_chunks)
      .read(0, p.query)
      .read(1, p.key)
      .read(2, p.u)
      .read(3, p.w)
      .read(4, p.p)
      .read(5, p.sums)
      .write(6, slots_)
      .constants(7, prefill_.segment_rows)
      .write(8, p.value)
      .value(9, args)
      .dispatch({.x = kDeltaParts, .y = heads, .z = static_cast<std::uint32_t>(prefill_.segments())},
                kDeltaChunk / 8 * kSimd);
}

// ---- attention

void MetalBackend::attention_prefill(const AttentionOnDevice& w, int attention_index) {
  const PrefillScratch& p = scratch_.prefill;
  norm_prefill_rows(w.input_norm);
  project_prefill(w.in_proj, p.projected);
  const AttentionArgs args = attention_args(w, attention_index, prefill_);
  prepare_heads(w, args, prefill_, p.projected, p.attention_query);
  const std::int64_t longest = prefill_.longest() * (s_.query_heads / s_.kv_heads);
  encoder_.use(*pipelines_.attend_rows)
      .read(0, p.attention_query)
      .read(1, pages_)
      .read(2, p.projected)
      .constants(3, prefill_.segment_rows)
      .constants(4, prefill_.pages)
      .write(5, p.mixed)
      .value(6, args)
      .dispatch({.x = groups_of(kRangeSimdgroups * kQueryTile, longest),
                 .y = static_cast<std::uint32_t>(args.kv_heads),
                 .z = static_cast<std::uint32_t>(prefill_.segments())},
                kRangeSimdgroups * kSimd);
  multiply(pipelines_.gemm_add, w.out_proj, dense(p.mixed, scratch_.residual), s_.hidden);
}

// ---- mixture of experts

// The router sees f32 activations, as in decoding: rounded ones would choose other experts.
void MetalBackend::moe_prefill(const MoeOnDevice& w) {
  const PrefillScratch& p = scratch_.prefill;
  project(w.router, {.x = scratch_.residual, .rows = prefill_rows(), .gain = w.norm, .out = p.logits});
  norm_prefill_rows(w.norm);
  encoder_.use(*pipelines_.zero_counts)
      .write(0, p.counts)
      .dispatch({.x = groups_of(kRowThreads, kMaxExperts)}, kRowThreads);
  multiply_gated(w.shared_gate, w.shared_up, dense(p.normed, p.shared));
  sort_rows();
  expert_products(w);
  Product shared = dense(p.shared, scratch_.residual);
  shared.weight = p.share;
  multiply(pipelines_.gemm_down_add, w.shared_down, shared, s_.hidden);
  encoder_.use(*pipelines_.combine_rows)
      .read(0, p.expert_out)
      .read(1, p.place)
      .write(2, scratch_.residual)
      .value(3, CombineArgs{.hidden = static_cast<int>(s_.hidden),
                            .experts_per_token = static_cast<int>(s_.experts_per_token)})
      .dispatch({.x = groups_of(kRowThreads, s_.hidden), .y = static_cast<std::uint32_t>(prefill_rows())},
                kRowThreads);
}

void MetalBackend::mlp_prefill(const MlpOnDevice& w) {
  const PrefillScratch& p = scratch_.prefill;
  norm_prefill_rows(w.norm);
  multiply_gated(w.gate, w.up, dense(p.normed, p.shared));
  multiply(pipelines_.gemm_down_add, w.down, dense(p.shared, scratch_.residual), s_.hidden);
}

// By the rows that an expert gets on average; how many each one gets is known to the device alone.
int MetalBackend::expert_tile_rows() const {
  const std::int64_t average = prefill_rows() * s_.experts_per_token / s_.experts;
  return average >= kTallTileRows ? kTallTileRows : kTileRows;
}

// Lists of each expert's rows, made on the device.
void MetalBackend::sort_rows() {
  const PrefillScratch& p = scratch_.prefill;
  const std::int64_t choices = prefill_rows() * s_.experts_per_token;
  const RouteArgs args{.experts = static_cast<int>(s_.experts),
                       .experts_per_token = static_cast<int>(s_.experts_per_token),
                       .logits_stride = static_cast<int>(s_.experts + 1),
                       .rows = prefill_rows(),
                       .most_tiles = static_cast<int>(most_tiles(s_, prefill_rows())),
                       .tile_rows = expert_tile_rows()};
  encoder_.use(*pipelines_.choose_rows)
      .read(0, p.logits)
      .write(1, p.chosen)
      .write(2, p.place)
      .write(3, p.weights)
      .write(4, p.share)
      .write(5, p.counts)
      .value(6, args)
      .dispatch({.x = groups_of(kRouteSimdgroups, args.rows)}, kRouteSimdgroups * kSimd);
  encoder_.use(*pipelines_.list_tiles)
      .read(0, p.counts)
      .write(1, p.first)
      .write(2, p.tiles)
      .value(3, args)
      .dispatch({}, kMaxExperts);
  encoder_.use(*pipelines_.place_rows)
      .read(0, p.chosen)
      .read(1, p.weights)
      .read(2, p.first)
      .write(3, p.place)
      .write(4, p.row_index)
      .write(5, p.row_weight)
      .value(6, args)
      .dispatch({.x = groups_of(kPlaceThreads, choices)}, kPlaceThreads);
}

void MetalBackend::expert_products(const MoeOnDevice& w) {
  const PrefillScratch& p = scratch_.prefill;
  const std::int64_t tiles = most_tiles(s_, prefill_rows());
  multiply_gated(w.gate, w.up,
                 {.input = p.normed,
                  .out = p.expanded,
                  .tiles = p.tiles,
                  .tile_count = tiles,
                  .tile_rows = expert_tile_rows(),
                  .index = p.row_index});
  multiply(pipelines_.gemm_down, w.down,
           {.input = p.expanded,
            .out = p.expert_out,
            .tiles = p.tiles,
            .tile_count = tiles,
            .tile_rows = expert_tile_rows(),
            .weight = p.row_weight},
           s_.hidden);
}

}  // namespace lily::metal
