// The gated delta rule, token by token: convolution, normalisation, recurrence and gated norm of one key
// head.
//
// The recurrence of a head is, per token, with S [128, 128] indexed [key][value]:
//   S <- g S;  m = S^T k;  d = beta (v - m);  S <- S + k d^T;  o = S^T q
// Value columns do not mix, so it runs over blocks of columns: one pass reads a block for m, the second
// updates it and sums o. The state is kept block by block, so that a block is 16 KiB in a row and the second
// pass finds it in the first-level cache (columns cut out of whole rows would share few of its sets). The
// decay is folded into both (m = g (S^T k)).
#pragma once

#include "backend/cpu/kernels.h"
#include "backend/cpu/vector_impl.h"

namespace lily::cpu {
namespace {

constexpr int kDim = 128;  // of a linear key or value head

struct HeadStep {
  const float* q;
  const float* k;
  const float* v;
  float decay;
  float beta;
};

constexpr int kColumns = static_cast<int>(kStateColumns);
constexpr int kWide = kColumns / kLanes;             // vectors a row of a block
constexpr int kUnroll = kWide >= 8 ? 1 : 8 / kWide;  // rows at once: eight chains of sums

LILY_INLINE F32 sum_rows(const F32 (&parts)[kUnroll][kWide], int w) {
  F32 sum = parts[0][w];
  for (int u = 1; u < kUnroll; ++u) sum += parts[u][w];
  return sum;
}

/// One block of columns, [128, kColumns], of one head; `column` is its first.
LILY_INLINE void delta_columns(const HeadStep& x, float* block, int column, float* out) {
  F32 m[kUnroll][kWide] = {};
  for (int i = 0; i < kDim; i += kUnroll) {
    for (int u = 0; u < kUnroll; ++u) {
      for (int w = 0; w < kWide; ++w)
        m[u][w] += load_f32(block + (i + u) * kColumns + w * kLanes) * x.k[i + u];
    }
  }
  F32 d[kWide];
  for (int w = 0; w < kWide; ++w) {
    d[w] = (load_f32(x.v + column + w * kLanes) - sum_rows(m, w) * x.decay) * x.beta;
  }
  F32 o[kUnroll][kWide] = {};
  for (int i = 0; i < kDim; i += kUnroll) {
    for (int u = 0; u < kUnroll; ++u) {
      for (int w = 0; w < kWide; ++w) {
        float* p = block + (i + u) * kColumns + w * kLanes;
        const F32 updated = load_f32(p) * x.decay + d[w] * x.k[i + u];
        store(p, updated);
        o[u][w] += updated * x.q[i + u];
      }
    }
  }
  for (int w = 0; w < kWide; ++w) store(out + column + w * kLanes, sum_rows(o, w));
}

/// SiLU(sum_j taps[j][c] * row[t - 3 + j][c]); rows before the first are the history.
LILY_INLINE void convolve(const float* base, std::int64_t stride, const float* history, const float* taps,
                          std::int64_t channels, std::int64_t t, std::int64_t n, float* out) {
  const float* row[4];
  for (int j = 0; j < 4; ++j) {
    const std::int64_t at = t - 3 + j;
    row[j] = at < 0 ? history + (at + 3) * channels : base + at * stride;
  }
  for (std::int64_t c = 0; c < n; c += kLanes) {
    F32 sum = load_f32(row[0] + c) * load_f32(taps + c);
    for (int j = 1; j < 4; ++j) sum += load_f32(row[j] + c) * load_f32(taps + j * channels + c);
    store(out + c, silu(sum));
  }
}

/// The history becomes the last three rows of (history, new rows).
LILY_INLINE void advance_history(const float* base, std::int64_t stride, float* history,
                                 std::int64_t channels, std::int64_t tokens, std::int64_t n) {
  for (int j = 0; j < 3; ++j) {
    const std::int64_t at = tokens - 3 + j;
    const float* row = at < 0 ? history + (at + 3) * channels : base + at * stride;
    for (std::int64_t c = 0; c < n; c += kLanes) store(history + j * channels + c, load_f32(row + c));
  }
}

LILY_INLINE void l2_normalize(float* x, float factor) {
  const float scale = factor / sqrt_f32(dot(x, x, kDim) + 1e-6F);
  for (int i = 0; i < kDim; i += kLanes) store(x + i, load_f32(x + i) * scale);
}

LILY_INLINE float softplus(float x) {
  return x > 20.0F ? x : __builtin_log1pf(__builtin_expf(x));
}

/// Norm first, then the gate.
LILY_INLINE void gated_norm(const float* o, const float* gain, float eps, const float* z, float* out) {
  const float scale = 1.0F / sqrt_f32(dot(o, o, kDim) / static_cast<float>(kDim) + eps);
  for (int i = 0; i < kDim; i += kLanes) {
    store(out + i, load_f32(o + i) * scale * load_f32(gain + i) * silu(load_f32(z + i)));
  }
}

void delta_rule(const DeltaArgs& a) {
  alignas(64) float q[kDim];
  alignas(64) float k[kDim];
  alignas(64) float v[kDim * kMostValueHeads];
  alignas(64) float o[kDim];
  const std::int64_t channels = a.history_stride;
  for (std::int64_t t = 0; t < a.tokens; ++t) {
    convolve(a.q, a.stride, a.q_history, a.q_taps, channels, t, kDim, q);
    convolve(a.k, a.stride, a.k_history, a.k_taps, channels, t, kDim, k);
    convolve(a.v, a.stride, a.v_history, a.v_taps, channels, t, kDim * a.value_heads, v);
    l2_normalize(q, 0.08838834764831845F);  // 1 / sqrt(128)
    l2_normalize(k, 1.0F);
    for (std::int64_t h = 0; h < a.value_heads; ++h) {
      const float step = __builtin_expf(a.a_log[h]) * softplus(a.a[t * a.stride + h] + a.dt_bias[h]);
      const float beta = 1.0F / (1.0F + __builtin_expf(-a.b[t * a.stride + h]));
      const HeadStep x = {q, k, v + h * kDim, __builtin_expf(-step), beta};
      for (int column = 0; column < kDim; column += kColumns) {
        delta_columns(x, a.state + (h * kDim + column) * kDim, column, o);
      }
      gated_norm(o, a.norm, a.eps, a.z + t * a.stride + h * kDim, a.out + t * a.out_stride + h * kDim);
    }
  }
  advance_history(a.q, a.stride, a.q_history, channels, a.tokens, kDim);
  advance_history(a.k, a.stride, a.k_history, channels, a.tokens, kDim);
  advance_history(a.v, a.stride, a.v_history, channels, a.tokens, kDim * a.value_heads);
}

}  // namespace
}  // namespace lily::cpu
