// Norms and gates: one pass over a row.
#pragma once

#include "backend/cpu/kernels.h"
#include "backend/cpu/vector_impl.h"

namespace lily::cpu {
namespace {

void rms_norm(const float* x, const float* gain, float eps, std::int64_t n, float* out) {
  const float scale = 1.0F / sqrt_f32(dot(x, x, n) / static_cast<float>(n) + eps);
  for (std::int64_t i = 0; i < n; i += kLanes) store(out + i, load_f32(x + i) * scale * load_f32(gain + i));
}

void swiglu(const float* gate, const float* up, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; i += kLanes) store(out + i, silu(load_f32(gate + i)) * load_f32(up + i));
}

void gate_output(const float* x, float factor, const float* gate, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; i += kLanes) {
    store(out + i, load_f32(x + i) * factor * sigmoid(load_f32(gate + i)));
  }
}

// Element j of the first 64 turns with element j + 32.
void head_norm(const HeadNormArgs& a) {
  constexpr int kHead = 256;
  constexpr int kHalf = 32;
  rms_norm(a.head, a.gain, a.eps, kHead, a.head);
  for (int j = 0; j < kHalf; j += kLanes) {
    const F32 first = load_f32(a.head + j);
    const F32 second = load_f32(a.head + j + kHalf);
    const F32 c = load_f32(a.cosine + j);
    const F32 s = load_f32(a.sine + j);
    store(a.head + j, first * c - second * s);
    store(a.head + j + kHalf, second * c + first * s);
  }
}

}  // namespace
}  // namespace lily::cpu
