// Products of quantised matrix rows with activations, the core of every matrix-vector kernel. Matrices are
// MLX's: codes [out, in bits / 32] words, lowest bits first, and a bf16 scale and bias for 64 inputs or 32.
//
// A lane takes 64 inputs at a time: it loads scale and bias once for each of their groups, its 32 (or 64)
// bytes of codes in loads of 16, and adds the activations once for all its rows. sum w x = scale sum code x +
// bias sum x.
#pragma once

#include "functions.h"

struct Matrix {
  device const uint4* codes;
  device const bfloat* scales;
  device const bfloat* biases;
  int in;
};

/// kRows consecutive rows of a matrix, as a lane sees them; rows from `end` on repeat the last one.
template <int kBits, int kRows, int kTokens>
struct MatrixRows {
  static constexpr constant int kLoads = kBits / 2;  // of 16 bytes, for a group
  device const uint4* codes[kRows];
  device const bfloat* scales[kRows];
  device const bfloat* biases[kRows];
  uint4 words[kRows][kLoads];
  float dots[kRows][kTokens];
  float sums[kRows][kTokens];

  void start(Matrix m, ulong first, ulong end) {
    for (int r = 0; r < kRows; ++r) {
      const ulong row = min(first + ulong(r), end - 1);
      const ulong groups = ulong(m.in / kGroup);
      codes[r] = m.codes + row * groups * kLoads;
      scales[r] = m.scales + row * ulong(scales_of(m.in));
      biases[r] = m.biases + row * ulong(scales_of(m.in));
      for (int t = 0; t < kTokens; ++t) {
        sums[r][t] = 0.0f;
        dots[r][t] = 0.0f;
      }
    }
  }
  void load(int group) {
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kLoads; ++i) words[r][i] = codes[r][group * kLoads + i];
    }
  }
  /// Inputs 8 step .. 8 step + 7 of the group.
  void add(int step, int t, float4 x0, float4 x1) {
    for (int r = 0; r < kRows; ++r) {
      float4 w0;
      float4 w1;
      if (kBits == 4) {
        const uint w = words[r][step / 4][step % 4];
        w0 = float4(float(w & 15u), float((w >> 4) & 15u), float((w >> 8) & 15u), float((w >> 12) & 15u));
        w1 = float4(float((w >> 16) & 15u), float((w >> 20) & 15u), float((w >> 24) & 15u), float(w >> 28));
      } else {
        const uint a = words[r][step / 2][step % 2 * 2];
        const uint b = words[r][step / 2][step % 2 * 2 + 1];
        w0 = float4(float(a & 255u), float((a >> 8) & 255u), float((a >> 16) & 255u), float(a >> 24));
        w1 = float4(float(b & 255u), float((b >> 8) & 255u), float((b >> 16) & 255u), float(b >> 24));
      }
      float d = dots[r][t];
      d = fma(w0.x, x0.x, fma(w0.y, x0.y, fma(w0.z, x0.z, fma(w0.w, x0.w, d))));
      d = fma(w1.x, x1.x, fma(w1.y, x1.y, fma(w1.z, x1.z, fma(w1.w, x1.w, d))));
      dots[r][t] = d;
    }
  }
  /// What was added since the last call, under the row's scale and bias number `at`.
  void finish(int at, int t, float x_sum) {
    for (int r = 0; r < kRows; ++r) {
      sums[r][t] += fma(float(scales[r][at]), dots[r][t], float(biases[r][at]) * x_sum);
      dots[r][t] = 0.0f;
    }
  }
  /// The whole row's sum, in every lane that shares it.
  float total(int r, int t, int lanes) const { return sum_lanes(sums[r][t], lanes); }
};

/// Whether the eight inputs of `step` end the first of two groups.
inline bool ends_first_group(int step) {
  return FC_SMALL_GROUPS && step == kGroup / 16 - 1;
}
/// Number of the scale that the last inputs of a lane's `g`-th 64 are under.
inline int last_scale(int g) {
  return FC_SMALL_GROUPS ? 2 * g + 1 : g;
}

inline float sum8(float4 a, float4 b) {
  const float4 s = a + b;
  return (s.x + s.y) + (s.z + s.w);
}

/// Rows as they are.
template <int kTokens>
struct PlainInput {
  device const float4* rows[kTokens];
  void group(int, int) {}
  float4 at(int t, int quad) { return rows[t][quad]; }
};

/// Rows for RMSNorm: times the gain at once, divided by the root of the mean square at the end.
template <int kTokens>
struct NormedInput {
  device const float4* rows[kTokens];
  device const float4* gain;
  float squares[kTokens];
  void group(int, int) {}
  float4 at(int t, int quad) {
    const float4 x = rows[t][quad];
    squares[t] += dot(x, x);
    return x * gain[quad];
  }
  /// The factor of every output of row t; the same in all lanes of a row.
  float factor(int t, int in, float eps, int lanes) const {
    return rsqrt(sum_lanes(squares[t], lanes) / float(in) + eps);
  }
};

/// Heads of 128 for the gated norm: normed, times the gain and SiLU(gate). `squares` holds the sums of
/// squares of a head's kDeltaParts parts.
template <int kTokens>
struct GatedNormInput {
  device const float4* rows[kTokens];
  device const float4* gates[kTokens];
  device const float4* squares[kTokens];
  device const float4* gain;
  float eps;
  float inverse;
  void group(int t, int g) {
    const float4 s = squares[t][g * kGroup / kLinearDim];
    inverse = rsqrt(((s.x + s.y) + (s.z + s.w)) / float(kLinearDim) + eps);
  }
  float4 at(int t, int quad) {
    const float4 z = gates[t][quad];
    const float4 gate = float4(silu(z.x), silu(z.y), silu(z.z), silu(z.w));
    return rows[t][quad] * inverse * gain[quad % (kLinearDim / 4)] * gate;
  }
};

/// All groups of `rows` that belong to this lane.
template <int kTokens, class Rows, class Input>
void dot_rows(thread Rows& rows, thread Input& input, int groups, int first, int step) {
  for (int g = first; g < groups; g += step) {
    rows.load(g);
    for (int t = 0; t < kTokens; ++t) {
      input.group(t, g);
      float x_sum = 0.0f;
      for (int i = 0; i < kGroup / 8; ++i) {
        const int quad = g * (kGroup / 4) + i * 2;
        const float4 x0 = input.at(t, quad);
        const float4 x1 = input.at(t, quad + 1);
        x_sum += sum8(x0, x1);
        rows.add(i, t, x0, x1);
        if (ends_first_group(i)) {
          rows.finish(2 * g, t, x_sum);
          x_sum = 0.0f;
        }
      }
      rows.finish(last_scale(g), t, x_sum);
    }
  }
}

/// The same rows of two matrices over one read of the input.
template <class RowsA, class RowsB, class Input>
void dot_row_pairs(thread RowsA& a, thread RowsB& b, thread Input& input, int groups, int first, int step) {
  for (int g = first; g < groups; g += step) {
    a.load(g);
    b.load(g);
    input.group(0, g);
    float x_sum = 0.0f;
    for (int i = 0; i < kGroup / 8; ++i) {
      const int quad = g * (kGroup / 4) + i * 2;
      const float4 x0 = input.at(0, quad);
      const float4 x1 = input.at(0, quad + 1);
      x_sum += sum8(x0, x1);
      a.add(i, 0, x0, x1);
      b.add(i, 0, x0, x1);
      if (ends_first_group(i)) {
        a.finish(2 * g, 0, x_sum);
        b.finish(2 * g, 0, x_sum);
        x_sum = 0.0f;
      }
    }
    a.finish(last_scale(g), 0, x_sum);
    b.finish(last_scale(g), 0, x_sum);
  }
}
