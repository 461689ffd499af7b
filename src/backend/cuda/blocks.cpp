// The five blocks: which kernels run, on what.
#include <algorithm>
#include <limits>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/host_routing.h"
#include "backend/cuda/tiles.h"

namespace lily::cuda {

SlotView CudaBackend::slot_view(int linear_index) const {
  const std::int64_t layer = s_.recurrent_state_size() + kConvRing * s_.conv_channels();
  return {.layer = slots_ + linear_index * layer, .stride = slot_floats_};
}
PageView CudaBackend::page_view(int attention_index) const {
  return {.layer = pages_ + attention_index * 2 * kKvPageTokens * s_.kv_dim(),
          .stride = page_values_,
          .kv_heads = static_cast<int>(s_.kv_heads)};
}

// ---- embedding

// `gain`: of the norm that decoding rows meet first.
void CudaBackend::embed_rows(const RowBlock& rows, float* residual, const float* gain) {
  const RawMatrix& e = device_weights_->embedding;
  cuda::embed(where(), {.codes = e.codes,
                        .scales = e.scales,
                        .biases = e.biases,
                        .bits = e.bits,
                        .group_size = e.group_size,
                        .hidden = static_cast<int>(s_.hidden),
                        .frequencies = scratch_.frequencies,
                        .rows = rows.view(),
                        .residual = residual,
                        .gain = gain,
                        .normed = scratch_.decode.normed});
}

void CudaBackend::embed(const EmbedBlock& /*block*/) {
  run([this] {
    if (prefill_rows() > 0) {
      list_dense_tiles();
      embed_rows(prefill_, scratch_.residual, nullptr);
    }
    if (decode_rows() > 0) embed_rows(decode_, decode_residual(), mixer_gain(0));
  });
}

// ---- products

namespace {
// The kernels of short tiles are the faster ones where both have a height; the products round the same in
// both.
TileSet tile_set_of(int rows) {
  return rows > tile_rows(TileSet::kShort) ? TileSet::kTall : TileSet::kShort;
}
}  // namespace

void CudaBackend::list_dense_tiles() {
  PrefillScratch& p = scratch_.prefill;
  for (int list = 0; list < kDenseTileLists; ++list) {
    const auto at = static_cast<std::size_t>(list);
    const int most = dense_tile_rows(list);
    list_tiles(where(), {.counts = nullptr,
                         .experts = 1,
                         .rows = prefill_rows(),
                         .most_rows = most,
                         .tiles = p.dense_tiles[at],
                         .count = p.dense_tile_count[at],
                         .set = tile_set_of(most)});
  }
}

// The tallest tiles that keep half of the multiprocessors busy: with few rows and few channels short ones,
// though each of them reads the weights again.
int CudaBackend::dense_tile_list(const Packed& matrix) const {
  int list = hopper_gemm_takes(device_.device, matrix) ? kDenseTileLists - 1 : kDenseTileLists - 2;
  const auto tiles = [&](int l) {
    return (prefill_rows() + dense_tile_rows(l) - 1) / dense_tile_rows(l) * matrix.tiles();
  };
  while (list > 0 && 2 * tiles(list) <= device_.device.multiprocessors) --list;
  return list;
}

void CudaBackend::dense_product(GemmOut out, const Packed& matrix, const __nv_bfloat16* input, void* to,
                                std::int64_t stride) {
  const int list = dense_tile_list(matrix);
  const auto at = static_cast<std::size_t>(list);
  gemm(where(), out,
       {.input = input,
        .row_index = nullptr,
        .matrix = matrix,
        .tiles = scratch_.prefill.dense_tiles[at],
        .tile_count = scratch_.prefill.dense_tile_count[at],
        .most_tiles = most_tiles(prefill_rows(), 1),
        .set = tile_set_of(dense_tile_rows(list)),
        .out = to,
        .out_stride = stride,
        .out_limit = static_cast<int>(stride),
        .row_weight = nullptr});
}

void CudaBackend::norm_prefill_rows(const float* gain) {
  norm_rows(where(), {.residual = scratch_.residual,
                      .gain = gain,
                      .eps = s_.rms_norm_eps,
                      .hidden = static_cast<int>(s_.hidden),
                      .rows = prefill_rows(),
                      .out = scratch_.prefill.normed});
}

void CudaBackend::project_prefill(const float* gain, const Packed& matrix) {
  norm_prefill_rows(gain);
  dense_product(GemmOut::kStore, matrix, scratch_.prefill.normed, scratch_.prefill.projected,
                matrix.channels);
}

const float* CudaBackend::mixer_gain(int layer) const {
  const auto at = static_cast<std::size_t>(layer);
  if (at == device_weights_->layers.size()) return device_weights_->norm;
  return std::visit([](const auto& mixer) { return mixer.input_norm; }, device_weights_->layers[at].mixer);
}

const float* CudaBackend::mlp_gain(int layer) const {
  return std::visit([](const auto& mlp) { return mlp.norm; },
                    device_weights_->layers[static_cast<std::size_t>(layer)].mlp);
}

void CudaBackend::project_decode(const Packed& matrix) {
  project(where(), {.normed = scratch_.decode.normed,
                    .residual = nullptr,
                    .row_index = nullptr,
                    .gain = nullptr,
                    .eps = s_.rms_norm_eps,
                    .matrix = matrix,
                    .out = scratch_.decode.projected,
                    .out_stride = matrix.channels,
                    .out_limit = matrix.channels,
                    .rows = decode_rows()});
}

void CudaBackend::out_decode(const Packed& matrix, int layer, bool norm_heads) {
  DecodeScratch& d = scratch_.decode;
  out_product(where(), {.input = d.mixed,
                        .gated = false,
                        .norm_heads = norm_heads,
                        .eps = s_.rms_norm_eps,
                        .matrix = matrix,
                        .residual = decode_residual(),
                        .next_gain = mlp_gain(layer),
                        .normed = d.normed,
                        .rows = decode_rows()});
}

// ---- gated delta rule

void CudaBackend::recurrent_block(const RecurrentBlock& block) {
  const auto& w =
      std::get<RecurrentOnDevice>(device_weights_->layers[static_cast<std::size_t>(block.layer)].mixer);
  run([this, &w, index = block.linear_index, layer = block.layer] {
    if (prefill_rows() > 0) recurrent_prefill(w, index);
    if (decode_rows() > 0) recurrent_decode(w, index, layer);
  });
}

void CudaBackend::recurrent_prefill(const RecurrentOnDevice& w, int linear_index) {
  PrefillScratch& p = scratch_.prefill;
  project_prefill(w.input_norm, w.in_proj);
  delta_prefill(where(), {.projected = p.projected,
                          .stride = w.in_proj.channels,
                          .a_offset = w.a_offset,
                          .b_offset = w.b_offset,
                          .z_offset = w.z_offset,
                          .key_heads = static_cast<int>(s_.linear_key_heads),
                          .value_heads = static_cast<int>(s_.linear_value_heads),
                          .taps = w.taps,
                          .A_log = w.A_log,
                          .dt_bias = w.dt_bias,
                          .gain = w.norm,
                          .eps = s_.rms_norm_eps,
                          .state = slot_view(linear_index),
                          .rows = prefill_.view(),
                          .segments = prefill_.segment_rows(),
                          .segment_count = prefill_.segments(),
                          .chunk_count = prefill_.chunks(),
                          .segment_of = prefill_.segment_of(),
                          .query = p.query,
                          .key = p.key,
                          .value = p.value,
                          .gates = p.gates,
                          .chunks = p.chunks,
                          .sequential = ways_.sequential_delta,
                          .out = p.mixed});
  dense_product(GemmOut::kAdd, w.out_proj, p.mixed, scratch_.residual, s_.hidden);
}

void CudaBackend::recurrent_decode(const RecurrentOnDevice& w, int linear_index, int layer) {
  DecodeScratch& d = scratch_.decode;
  project_decode(w.in_proj);
  delta_decode(where(), {.projected = d.projected,
                         .stride = w.in_proj.channels,
                         .a_offset = w.a_offset,
                         .b_offset = w.b_offset,
                         .key_heads = static_cast<int>(s_.linear_key_heads),
                         .value_heads = static_cast<int>(s_.linear_value_heads),
                         .taps = w.taps,
                         .A_log = w.A_log,
                         .dt_bias = w.dt_bias,
                         .z_offset = w.z_offset,
                         .gain = w.norm,
                         .state = slot_view(linear_index),
                         .rows = decode_.view(),
                         .out = d.mixed});
  out_decode(w.out_proj, layer, true);
}

// ---- attention

void CudaBackend::attention_block(const AttentionBlock& block) {
  const auto& w =
      std::get<AttentionOnDevice>(device_weights_->layers[static_cast<std::size_t>(block.layer)].mixer);
  run([this, &w, index = block.attention_index, layer = block.layer] {
    if (prefill_rows() > 0) attention_prefill_rows(w, index);
    if (decode_rows() > 0) attention_decode_rows(w, index, layer);
  });
}

void CudaBackend::attention_prefill_rows(const AttentionOnDevice& w, int attention_index) {
  PrefillScratch& p = scratch_.prefill;
  project_prefill(w.input_norm, w.in_proj);
  attention_prefill(where(), {.projected = p.projected,
                              .stride = w.in_proj.channels,
                              .query_heads = static_cast<int>(s_.query_heads),
                              .q_gain = w.q_norm,
                              .k_gain = w.k_norm,
                              .eps = s_.rms_norm_eps,
                              .cache = page_view(attention_index),
                              .rows = prefill_.view(),
                              .segments = prefill_.segment_rows(),
                              .segment_count = prefill_.segments(),
                              .longest_segment = prefill_.longest_segment(),
                              .query = p.attention_query,
                              .partial = p.attention_partial,
                              .partial_tiles = p.attention_partial_tiles,
                              .out = p.mixed});
  dense_product(GemmOut::kAdd, w.out_proj, p.mixed, scratch_.residual, s_.hidden);
}

void CudaBackend::attention_decode_rows(const AttentionOnDevice& w, int attention_index, int layer) {
  DecodeScratch& d = scratch_.decode;
  project_decode(w.in_proj);
  attention_decode(where(), {.projected = d.projected,
                             .stride = w.in_proj.channels,
                             .query_heads = static_cast<int>(s_.query_heads),
                             .q_gain = w.q_norm,
                             .k_gain = w.k_norm,
                             .eps = s_.rms_norm_eps,
                             .cache = page_view(attention_index),
                             .rows = decode_.view(),
                             .partial = d.partial,
                             .partial_max = d.partial_max,
                             .heads_apart = ways_.heads_apart,
                             .out = d.mixed});
  out_decode(w.out_proj, layer, false);
}

// ---- mixture of experts

void CudaBackend::moe_block(const MoeBlock& block) {
  const auto& w = std::get<MoeOnDevice>(device_weights_->layers[static_cast<std::size_t>(block.layer)].mlp);
  run([this, &w, next_gain = mixer_gain(block.layer + 1)] {
    if (prefill_rows() > 0) moe_prefill_rows(w);
    if (decode_rows() > 0) moe_decode_rows(w, next_gain);
  });
}

void CudaBackend::moe_prefill_rows(const MoeOnDevice& w) {
  PrefillScratch& p = scratch_.prefill;
  router_logits(where(), {.normed = nullptr,
                          .residual = scratch_.residual,
                          .row_index = nullptr,
                          .gain = w.norm,
                          .eps = s_.rms_norm_eps,
                          .matrix = w.router,
                          .out = p.logits,
                          .out_stride = scratch_.router_stride,
                          .out_limit = w.router.channels,
                          .rows = prefill_rows()});
  norm_prefill_rows(w.norm);
  expert_products(w);
  dense_product(GemmOut::kSwiglu, w.shared_in, p.normed, p.shared, s_.shared_width);
  dense_product(GemmOut::kStore, w.shared_out, p.shared, p.shared_out, s_.hidden);
  combine(where(), {.expert_out = p.expert_out,
                    .place = p.place,
                    .experts_per_token = static_cast<int>(s_.experts_per_token),
                    .shared_out = p.shared_out,
                    .shared_gate = p.logits + w.shared_gate,
                    .shared_gate_stride = scratch_.router_stride,
                    .hidden = static_cast<int>(s_.hidden),
                    .rows = prefill_rows(),
                    .residual = scratch_.residual});
}

void CudaBackend::expert_products(const MoeOnDevice& w) {
  PrefillScratch& p = scratch_.prefill;
  const int choices = prefill_rows() * static_cast<int>(s_.experts_per_token);
  const int experts = static_cast<int>(s_.experts);
  const auto by = ways_.host_routing ? route_on_host : route;
  by(where(), {.logits = p.logits,
               .stride = scratch_.router_stride,
               .experts = experts,
               .experts_per_token = static_cast<int>(s_.experts_per_token),
               .rows = prefill_rows(),
               .chosen = p.chosen,
               .place = p.place,
               .weight = p.weight,
               .counts = p.counts,
               .row_index = p.row_index,
               .row_weight = p.row_weight});
  const bool hopper =
      hopper_gemm_takes(device_.device, w.experts_in) && hopper_gemm_takes(device_.device, w.experts_out);
  const TileSet set = hopper ? tile_set_of(choices / experts) : TileSet::kShort;
  list_tiles(where(), {.counts = p.counts,
                       .experts = experts,
                       .rows = 0,
                       .most_rows = tile_rows(set),
                       .tiles = p.expert_tiles,
                       .count = p.expert_tile_count,
                       .set = set});
  GemmArgs args{.input = p.normed,
                .row_index = p.row_index,
                .matrix = w.experts_in,
                .tiles = p.expert_tiles,
                .tile_count = p.expert_tile_count,
                .most_tiles = most_tiles(choices, experts),
                .set = set,
                .out = p.expanded,
                .out_stride = s_.expert_width,
                .out_limit = static_cast<int>(s_.expert_width),
                .row_weight = nullptr};
  gemm(where(), GemmOut::kSwiglu, args);
  args.input = p.expanded;
  args.row_index = nullptr;
  args.matrix = w.experts_out;
  args.out = p.expert_out;
  args.out_stride = s_.hidden;
  args.out_limit = static_cast<int>(s_.hidden);
  args.row_weight = p.row_weight;
  gemm(where(), GemmOut::kScaled, args);
}

void CudaBackend::moe_decode_rows(const MoeOnDevice& w, const float* next_gain) {
  DecodeScratch& d = scratch_.decode;
  moe_decode(where(), {.residual = decode_residual(),
                       .normed = d.normed,
                       .next_gain = next_gain,
                       .eps = s_.rms_norm_eps,
                       .router = w.router,
                       .shared_in = w.shared_in,
                       .shared_out = w.shared_out,
                       .experts_in = w.experts_in,
                       .experts_out = w.experts_out,
                       .experts = static_cast<int>(s_.experts),
                       .experts_per_token = static_cast<int>(s_.experts_per_token),
                       .shared_gate = w.shared_gate,
                       .logits = d.logits,
                       .logits_stride = scratch_.router_stride,
                       .expanded = d.expanded,
                       .rows = decode_rows()});
}

// ---- dense MLP

void CudaBackend::mlp_block(const MlpBlock& block) {
  const auto& w = std::get<MlpOnDevice>(device_weights_->layers[static_cast<std::size_t>(block.layer)].mlp);
  run([this, &w, next_gain = mixer_gain(block.layer + 1)] {
    if (prefill_rows() > 0) mlp_prefill_rows(w);
    if (decode_rows() > 0) mlp_decode_rows(w, next_gain);
  });
}

void CudaBackend::mlp_prefill_rows(const MlpOnDevice& w) {
  PrefillScratch& p = scratch_.prefill;
  norm_prefill_rows(w.norm);
  dense_product(GemmOut::kSwiglu, w.in, p.normed, p.shared, s_.dense_width);
  dense_product(GemmOut::kAdd, w.out, p.shared, scratch_.residual, s_.hidden);
}

void CudaBackend::mlp_decode_rows(const MlpOnDevice& w, const float* next_gain) {
  DecodeScratch& d = scratch_.decode;
  gated_product(
      where(),
      {.normed = d.normed, .eps = s_.rms_norm_eps, .matrix = w.in, .out = d.expanded, .rows = decode_rows()});
  out_product(where(), {.input = d.expanded,
                        .gated = true,
                        .norm_heads = false,
                        .eps = s_.rms_norm_eps,
                        .matrix = w.out,
                        .residual = decode_residual(),
                        .next_gain = next_gain,
                        .normed = d.normed,
                        .rows = decode_rows()});
}

// ---- head

namespace {
Candidates unpacked(const RowCandidates& row) {
  Candidates candidates;
  candidates.above = *std::ranges::max_element(row.left_out);
  if (row.count <= 0 || row.count > kMostCandidates) {
    candidates.above = std::numeric_limits<float>::infinity();
    return candidates;
  }
  candidates.list.reserve(static_cast<std::size_t>(row.count));
  for (int i = 0; i < row.count; ++i) candidates.list.push_back({row.list[i].id, row.list[i].logit});
  return candidates;
}
}  // namespace

// Of the decoding rows, or of the `wanted` of all.
void CudaBackend::compute_logits(const int* wanted, int rows) {
  cuda::head(where(), {.normed = wanted == nullptr ? scratch_.decode.normed : nullptr,
                       .residual = scratch_.residual,
                       .row_index = wanted,
                       .gain = device_weights_->norm,
                       .eps = s_.rms_norm_eps,
                       .matrix = device_weights_->head,
                       .out = scratch_.logits,
                       .out_stride = s_.vocab,
                       .out_limit = static_cast<int>(s_.vocab),
                       .rows = rows});
}

void CudaBackend::compute_best(int rows, TokenId end) {
  argmax(where(), {.logits = scratch_.logits,
                   .stride = s_.vocab,
                   .limit = end,
                   .rows = rows,
                   .partial_value = scratch_.best_value,
                   .partial_index = scratch_.best_index,
                   .out = scratch_.best});
}

void CudaBackend::compute_candidates(int rows, TokenId end) {
  static_assert(kCandidateBlocks <= kArgmaxBlocks);  // they share scratch
  list_candidates(where(), {.logits = scratch_.logits,
                            .stride = s_.vocab,
                            .limit = end,
                            .rows = rows,
                            .largest = scratch_.best_value,
                            .bins = scratch_.bins,
                            .out = scratch_.candidates});
}

void CudaBackend::choose(Wanted wanted, int rows, TokenId end) {
  if (wanted == Wanted::kBest) compute_best(rows, end);
  if (wanted == Wanted::kCandidates) compute_candidates(rows, end);
}

void CudaBackend::head(const HeadBlock& block) {
  const std::int64_t wanted = batch_.logits_rows();
  if (wanted == 0) return;
  const Wanted what = !block.best.empty()         ? Wanted::kBest
                      : !block.candidates.empty() ? Wanted::kCandidates
                                                  : Wanted::kLogits;
  const auto expected = [&](Wanted of, std::int64_t size) { return of == what ? size : 0; };
  LILY_CHECK(std::ssize(block.best) == expected(Wanted::kBest, wanted), "{} ids for {} rows",
             block.best.size(), wanted);
  LILY_CHECK(std::ssize(block.candidates) == expected(Wanted::kCandidates, wanted) &&
                 std::ssize(block.candidates) <= kLogitsRows,
             "candidates of {} rows for {}", block.candidates.size(), wanted);
  LILY_CHECK(std::ssize(block.logits) == expected(Wanted::kLogits, wanted * s_.vocab),
             "{} floats for {} rows of {}", block.logits.size(), wanted, s_.vocab);
  if (what != Wanted::kLogits && best_end_ == 0) best_end_ = block.best_end;
  LILY_CHECK(what == Wanted::kLogits || best_end_ == block.best_end, "ids below {}, then below {}", best_end_,
             block.best_end);
  if (recording_) {  // all rows, in the batch's order
    run([this, rows = decode_rows(), what] {
      compute_logits(nullptr, rows);
      choose(what, rows, best_end_);
    });
    replay(what);
    return copy_results(block, 0, wanted);
  }
  for (std::int64_t first = 0; first < wanted; first += kLogitsRows) {
    const std::int64_t rows = std::min<std::int64_t>(kLogitsRows, wanted - first);
    compute_logits(prefill_.wanted() + first, static_cast<int>(rows));
    choose(what, static_cast<int>(rows), best_end_);
    copy_results(block, first, rows);
  }
}

void CudaBackend::copy_results(const HeadBlock& block, std::int64_t first, std::int64_t rows) {
  const auto count = static_cast<std::size_t>(rows);
  if (!block.best.empty()) {
    auto* pinned = reinterpret_cast<TokenId*>(pinned_logits_.data());
    copy_to_host(std::as_writable_bytes(std::span(pinned, count)), scratch_.best);
    std::copy_n(pinned, rows, block.best.begin() + first);
  } else if (!block.candidates.empty()) {
    auto* pinned = reinterpret_cast<RowCandidates*>(pinned_logits_.data());
    copy_to_host(std::as_writable_bytes(std::span(pinned, count)), scratch_.candidates);
    std::transform(pinned, pinned + rows, block.candidates.begin() + first, unpacked);
  } else {
    auto* pinned = reinterpret_cast<float*>(pinned_logits_.data());
    const std::int64_t floats = rows * s_.vocab;
    copy_to_host(std::as_writable_bytes(std::span(pinned, static_cast<std::size_t>(floats))),
                 scratch_.logits);
    std::copy_n(pinned, floats, block.logits.begin() + first * s_.vocab);
  }
}

void CudaBackend::read_logits(std::int64_t row, std::span<float> out) {
  LILY_CHECK(row < kLogitsRows && std::ssize(out) == s_.vocab, "row {}, {} floats", row, out.size());
  copy_to_host(std::as_writable_bytes(out), scratch_.logits + row * s_.vocab);
}

}  // namespace lily::cuda
