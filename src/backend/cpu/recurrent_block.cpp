// The gated-delta block: stacked projections, then everything up to the output projection head by head.
#include <array>

#include "backend/cpu/cpu_backend.h"

namespace lily::cpu {
namespace {

// Columns of projected_: qkv [C], z [Hv Dv], a [Hv], b [Hv].
struct Columns {
  explicit Columns(const Shapes& s)
      : z(s.conv_channels()),
        a(z + s.linear_value_dim()),
        b(a + s.linear_value_heads),
        width(b + s.linear_value_heads) {}
  std::int64_t z;
  std::int64_t a;
  std::int64_t b;
  std::int64_t width;
};

}  // namespace

void CpuBackend::recurrent_block(const RecurrentBlock& block) {
  const RecurrentWeights& w = block.weights;
  const Columns columns(s_);
  float* out = projected_.data();
  norm_rows(w.input_layernorm);
  products_.project(input_, std::array{Projection{w.in_proj_qkv, out, columns.width},
                                       Projection{w.in_proj_z, out + columns.z, columns.width},
                                       Projection{w.in_proj_a, out + columns.a, columns.width},
                                       Projection{w.in_proj_b, out + columns.b, columns.width}});

  mixed_.shape(s_.linear_value_dim(), counts());
  const std::vector<StepSegment>& segments = step_.segments();
  pool_.parallel_tasks(static_cast<std::int64_t>(segments.size()) * s_.linear_key_heads,
                       [&](std::int64_t task, int) {
                         delta_rule(block, segments[static_cast<std::size_t>(task / s_.linear_key_heads)],
                                    task % s_.linear_key_heads);
                       });
  products_.project(mixed_, std::array{Projection{w.out_proj, residual_.data(), s_.hidden, true}});
}

// One key head and its value heads own their channels of the convolution and their part of the state, so key
// heads are independent tasks. Consecutive value heads share a key head.
void CpuBackend::delta_rule(const RecurrentBlock& block, const StepSegment& placed, std::int64_t key_head) {
  if (placed.segment.rows() == 0) return;
  const RecurrentWeights& w = block.weights;
  const Columns columns(s_);
  const std::int64_t shared = s_.linear_value_heads / s_.linear_key_heads;
  const std::int64_t q = key_head * kLinearHeadDim;
  const std::int64_t k = s_.linear_key_dim() + q;
  const std::int64_t head = key_head * shared;
  const std::int64_t value = head * kLinearHeadDim;
  const std::int64_t v = 2 * s_.linear_key_dim() + value;
  const float* x = projected_.data() + placed.first_row * columns.width;
  const float* taps = conv_taps_[static_cast<std::size_t>(block.linear_index)].data();
  float* history = memory_.conv_history(placed.segment.slot, block.linear_index);
  float* state = memory_.recurrent_state(placed.segment.slot, block.linear_index);
  const std::int64_t first = placed.first_row - step_.first(placed.segment.phase);
  kernels_.delta_rule({.tokens = placed.segment.rows(),
                       .value_heads = shared,
                       .q = x + q,
                       .k = x + k,
                       .v = x + v,
                       .z = x + columns.z + value,
                       .a = x + columns.a + head,
                       .b = x + columns.b + head,
                       .stride = columns.width,
                       .q_taps = taps + q,
                       .k_taps = taps + k,
                       .v_taps = taps + v,
                       .q_history = history + q,
                       .k_history = history + k,
                       .v_history = history + v,
                       .history_stride = s_.conv_channels(),
                       .a_log = w.A_log.data() + head,
                       .dt_bias = w.dt_bias.data() + head,
                       .norm = w.norm.data(),
                       .eps = s_.rms_norm_eps,
                       .state = state + head * kLinearHeadDim * kLinearHeadDim,
                       .out = mixed_.values(placed.segment.phase, first) + value,
                       .out_stride = mixed_.width()});
  for (std::int64_t i = 0; i < placed.segment.rows(); ++i) {
    mixed_.quantize(placed.segment.phase, first + i, value, shared * kLinearHeadDim,
                    mixed_.values(placed.segment.phase, first + i) + value);
  }
}

}  // namespace lily::cpu
