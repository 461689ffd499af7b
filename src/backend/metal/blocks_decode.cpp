// The five blocks for decoding rows, and what both phases share: which kernels run, on what.
#include <algorithm>

#include "backend/metal/metal_backend.h"

namespace lily::metal {
namespace {

constexpr std::uint32_t kThreads = kDotSimdgroups * kSimd;

/// Rows of a matrix that a threadgroup of a matrix-vector kernel sums, `rows` a lane.
std::int64_t rows_of_group(std::int64_t in, int rows) {
  return std::int64_t{kDotSimdgroups} * (kSimd / lanes_of_row(static_cast<int>(in))) * rows;
}
View floats(const View& view, std::int64_t first) {
  return view.from(first * 4);
}

}  // namespace

void MetalBackend::bind(unsigned first, const Matrix& matrix) {
  encoder_.constants(first, matrix.codes)
      .constants(first + 1, matrix.scales)
      .constants(first + 2, matrix.biases);
}

// ---- embedding

void MetalBackend::embed_rows(const RowBlock& rows, const View& residual) {
  const Matrix& e = device_weights_->embedding;
  encoder_.use(*pipelines_.embed[bits_index(e.bits)]);
  bind(0, e);
  encoder_.constants(3, rows.token)
      .write(4, residual)
      .value(5, EmbedArgs{.hidden = static_cast<int>(s_.hidden), .rows = rows.rows()})
      .dispatch(
          {.x = groups_of(kThreads, s_.hidden * e.bits / 32), .y = static_cast<std::uint32_t>(rows.rows())},
          kThreads);
}

void MetalBackend::embed(const EmbedBlock& /*block*/) {
  if (prefill_rows() > 0) embed_rows(prefill_, scratch_.residual);
  if (decode_rows() > 0) embed_rows(decode_, decode_residual());
}

// ---- products

void MetalBackend::project(const Stack& stack, const Projection& p) {
  const std::size_t tokens = tokens_index(p.rows);
  const bool indexed = p.index.buffer != nullptr;
  for (const Stack::Part& part : stack.parts) {
    const Matrix& m = part.matrix;
    encoder_.use(*pipelines_.project[bits_index(m.bits)][tokens])
        .read(0, p.x)
        .constants(1, indexed ? p.index : p.x)
        .constants(2, p.gain);
    bind(3, m);
    encoder_.write_part(6, floats(p.out, part.first))
        .value(7, ProjectArgs{.in = static_cast<int>(m.in),
                              .out = static_cast<int>(m.out),
                              .out_stride = static_cast<int>(stack.out),
                              .rows = p.rows,
                              .indexed = indexed ? 1 : 0,
                              .eps = s_.rms_norm_eps})
        .dispatch(
            {.x = groups_of(rows_of_group(m.in, kDotRows), m.out), .y = groups_of(tokens_of(tokens), p.rows)},
            kThreads);
  }
}

// residual += matrix * x, by the kernel in use.
void MetalBackend::add_product(const Matrix& m, const View& x, int gate_stride) {
  const int rows = decode_rows();
  encoder_.read(0, x);
  bind(1, m);
  encoder_.write(4, decode_residual())
      .value(5, AddProductArgs{.in = static_cast<int>(m.in),
                               .out = static_cast<int>(m.out),
                               .rows = rows,
                               .gate_stride = gate_stride,
                               .eps = s_.rms_norm_eps})
      .dispatch({.x = groups_of(rows_of_group(m.in, kDotRows), m.out),
                 .y = groups_of(tokens_of(tokens_index(rows)), rows)},
                kThreads);
}

// ---- gated delta rule

void MetalBackend::recurrent_block(const RecurrentBlock& block) {
  const auto& w =
      std::get<RecurrentOnDevice>(device_weights_->layers[static_cast<std::size_t>(block.layer)].mixer);
  if (prefill_rows() > 0) recurrent_prefill(w, block.linear_index);
  if (decode_rows() > 0) recurrent_decode(w, block.linear_index);
}

DeltaArgs MetalBackend::delta_args(const RecurrentOnDevice& w, int linear_index, const RowBlock& rows) const {
  const std::int64_t layer = s_.recurrent_state_size() + kConvRing * s_.conv_channels();
  return {.stride = static_cast<int>(w.in_proj.out),
          .z_offset = static_cast<int>(w.in_proj.offsets[1]),
          .b_offset = static_cast<int>(w.in_proj.offsets[2]),
          .a_offset = static_cast<int>(w.in_proj.offsets[3]),
          .key_heads = static_cast<int>(s_.linear_key_heads),
          .value_heads = static_cast<int>(s_.linear_value_heads),
          .slot_stride = static_cast<int>(slot_floats_),
          .layer_offset = static_cast<int>(linear_index * layer),
          .rows = rows.rows(),
          .chunks = rows.chunks(),
          .eps = s_.rms_norm_eps};
}

void MetalBackend::recurrent_decode(const RecurrentOnDevice& w, int linear_index) {
  const DecodeScratch& d = scratch_.decode;
  const int rows = decode_rows();
  project(w.in_proj, {.x = decode_residual(), .rows = rows, .gain = w.input_norm, .out = d.projected});
  const DeltaArgs args = delta_args(w, linear_index, decode_);
  encoder_.use(*pipelines_.delta_decode)
      .read(0, d.projected)
      .constants(1, w.taps)
      .constants(2, w.A_log)
      .constants(3, w.dt_bias)
      .write(4, slots_)
      .constants(5, decode_.slot)
      .constants(6, decode_.position)
      .write(7, d.mixed)
      .write(8, d.squares)
      .value(9, args)
      .dispatch({.x = kDeltaParts,
                 .y = static_cast<std::uint32_t>(args.value_heads),
                 .z = static_cast<std::uint32_t>(rows)},
                kDeltaThreads);

  encoder_.use(*pipelines_.add_gated_norm[bits_index(w.out_proj.bits)][tokens_index(rows)])
      .read(6, floats(d.projected, args.z_offset))
      .read(7, d.squares)
      .constants(8, w.norm);
  add_product(w.out_proj, d.mixed, args.stride);
}

// ---- attention

void MetalBackend::attention_block(const AttentionBlock& block) {
  const auto& w =
      std::get<AttentionOnDevice>(device_weights_->layers[static_cast<std::size_t>(block.layer)].mixer);
  if (prefill_rows() > 0) attention_prefill(w, block.attention_index);
  if (decode_rows() > 0) attention_decode(w, block.attention_index);
}

AttentionArgs MetalBackend::attention_args(const AttentionOnDevice& w, int attention_index,
                                           const RowBlock& rows) const {
  return {.stride = static_cast<int>(w.in_proj.out),
          .query_heads = static_cast<int>(s_.query_heads),
          .kv_heads = static_cast<int>(s_.kv_heads),
          .rows = rows.rows(),
          .page_stride_table = rows.page_stride(),
          .page_stride = static_cast<unsigned>(page_values_),
          .layer_offset = static_cast<unsigned>(attention_index * 2 * kKvPageTokens * s_.kv_dim()),
          .query_rows = static_cast<int>(query_rows(s_, rows.rows())),
          .eps = s_.rms_norm_eps};
}

void MetalBackend::prepare_heads(const AttentionOnDevice& w, const AttentionArgs& args, const RowBlock& rows,
                                 const View& projected, const View& query) {
  encoder_.use(*pipelines_.prepare_heads)
      .read(0, projected)
      .constants(1, w.q_norm)
      .constants(2, w.k_norm)
      .constants(3, rows.rope)
      .constants(4, rows.position)
      .constants(5, rows.table)
      .constants(6, rows.pages)
      .constants(7, rows.last)
      .write(8, pages_)
      .write(9, query)
      .value(10, args)
      .dispatch({.x = groups_of(kHeadSimdgroups, args.query_heads + 2 * args.kv_heads),
                 .y = static_cast<std::uint32_t>(args.rows)},
                kHeadSimdgroups * kSimd);
}

void MetalBackend::attention_decode(const AttentionOnDevice& w, int attention_index) {
  const DecodeScratch& d = scratch_.decode;
  const int rows = decode_rows();
  project(w.in_proj, {.x = decode_residual(), .rows = rows, .gain = w.input_norm, .out = d.projected});
  const AttentionArgs args = attention_args(w, attention_index, decode_);
  prepare_heads(w, args, decode_, d.projected, d.query);
  const std::int64_t group = s_.query_heads / s_.kv_heads;
  attend_ranges(args, s_.kv_heads * groups_of(kQueryTile, group));

  encoder_.use(*pipelines_.add_plain[bits_index(w.out_proj.bits)][tokens_index(rows)]);
  add_product(w.out_proj, d.mixed, 0);
}

void MetalBackend::attend_ranges(const AttentionArgs& args, std::int64_t tiles) {
  const DecodeScratch& d = scratch_.decode;
  const auto rows = static_cast<std::uint32_t>(args.rows);
  // A shorter sequence beside the longest may have more ranges than it, of fewer keys each.
  int ranges = 0;
  for (int i = 0; i < args.rows; ++i) {
    const int length = decode_.position.as<int>()[i] + 1;
    ranges = std::max(ranges, (length + range_keys(length) - 1) / range_keys(length));
  }
  encoder_.use(*pipelines_.attend_ranges)
      .read(0, d.query)
      .read(1, pages_)
      .read(2, d.projected)
      .constants(3, decode_.position)
      .constants(4, decode_.table)
      .constants(5, decode_.pages)
      .write(6, d.partial)
      .write(7, d.stats)
      .write(8, d.mixed)
      .value(9, args)
      .dispatch({.x = groups_of(kRangeSimdgroups, ranges), .y = static_cast<std::uint32_t>(tiles), .z = rows},
                kRangeSimdgroups * kSimd);
  if (ranges == 1) return;
  encoder_.use(*pipelines_.join_ranges)
      .read(0, d.partial)
      .read(1, d.stats)
      .read(2, d.projected)
      .constants(3, decode_.position)
      .write(4, d.mixed)
      .value(5, args)
      .dispatch({.x = static_cast<std::uint32_t>(args.query_heads), .y = rows}, kHeadDim);
}

// ---- mixture of experts

void MetalBackend::moe_block(const MoeBlock& block) {
  const auto& w = std::get<MoeOnDevice>(device_weights_->layers[static_cast<std::size_t>(block.layer)].mlp);
  if (prefill_rows() > 0) moe_prefill(w);
  if (decode_rows() > 0) moe_decode(w);
  end_slice(block.layer);
}

MoeArgs MetalBackend::moe_args(const MoeOnDevice& w, int rows) const {
  return {.hidden = static_cast<int>(s_.hidden),
          .experts = static_cast<int>(s_.experts),
          .experts_per_token = static_cast<int>(s_.experts_per_token),
          .expert_width = static_cast<int>(s_.expert_width),
          .shared_width = static_cast<int>(s_.shared_width),
          .logits_stride = static_cast<int>(w.router.out),
          .rows = rows,
          .eps = s_.rms_norm_eps};
}

void MetalBackend::moe_decode(const MoeOnDevice& w) {
  const DecodeScratch& d = scratch_.decode;
  const MoeArgs args = moe_args(w, decode_rows());
  project(w.router, {.x = decode_residual(), .rows = args.rows, .gain = w.norm, .out = d.logits});
  expand(w.norm, w.shared_gate, w.shared_up, d.shared);  // beside the router, on its level
  experts_in(w, args);
  experts_out(w, args);
}

void MetalBackend::expand(const View& norm, const Matrix& gate, const Matrix& up, const View& out) {
  encoder_.use(*pipelines_.gated[bits_index(gate.bits)][bits_index(up.bits)])
      .read(0, decode_residual())
      .constants(1, norm);
  bind(2, gate);
  bind(5, up);
  encoder_.write(8, out)
      .value(9, GatedArgs{.in = static_cast<int>(gate.in),
                          .out = static_cast<int>(gate.out),
                          .rows = decode_rows(),
                          .eps = s_.rms_norm_eps})
      .dispatch({.x = groups_of(rows_of_group(gate.in, kGatedColumns), gate.out),
                 .y = static_cast<std::uint32_t>(decode_rows())},
                kThreads);
}

void MetalBackend::experts_in(const MoeOnDevice& w, const MoeArgs& args) {
  const DecodeScratch& d = scratch_.decode;
  encoder_.use(*pipelines_.experts_in[bits_index(w.gate.bits)][bits_index(w.up.bits)])
      .read(0, decode_residual())
      .constants(1, w.norm)
      .read(2, d.logits);
  bind(3, w.gate);
  bind(6, w.up);
  encoder_.write(9, d.expanded)
      .write(10, d.chosen)
      .write(11, d.weights)
      .value(12, args)
      .dispatch({.x = groups_of(rows_of_group(args.hidden, kGatedColumns), args.expert_width),
                 .y = static_cast<std::uint32_t>(args.experts_per_token),
                 .z = static_cast<std::uint32_t>(args.rows)},
                kThreads);
}

void MetalBackend::experts_out(const MoeOnDevice& w, const MoeArgs& args) {
  const DecodeScratch& d = scratch_.decode;
  encoder_.use(*pipelines_.experts_out[bits_index(w.down.bits)][bits_index(w.shared_down.bits)])
      .read(0, d.expanded)
      .read(1, d.chosen)
      .read(2, d.weights)
      .read(3, d.shared)
      .read(4, d.logits);
  bind(5, w.down);
  bind(8, w.shared_down);
  encoder_.write(11, decode_residual())
      .value(12, args)
      .dispatch({.x = groups_of(kExpertsOutRows, args.hidden), .y = static_cast<std::uint32_t>(args.rows)},
                static_cast<std::uint32_t>((args.experts_per_token + 1) * kSimd));
}

// ---- dense feed-forward

void MetalBackend::mlp_block(const MlpBlock& block) {
  const auto& w = std::get<MlpOnDevice>(device_weights_->layers[static_cast<std::size_t>(block.layer)].mlp);
  if (prefill_rows() > 0) mlp_prefill(w);
  if (decode_rows() > 0) mlp_decode(w);
  end_slice(block.layer);
}

void MetalBackend::mlp_decode(const MlpOnDevice& w) {
  const View& expanded = scratch_.decode.shared;
  expand(w.norm, w.gate, w.up, expanded);
  encoder_.use(*pipelines_.add_plain[bits_index(w.down.bits)][tokens_index(decode_rows())]);
  add_product(w.down, expanded, 0);
}

}  // namespace lily::metal
