// Products of quantised matrices and activations: quantising the activations, and the three routes through a
// product.
//
// With w = s q + b (q the code, s and b of its group) and x = sx c (c the int8 code of the activation),
//   sum_c w x = sum over groups of  s sx (q . c)  +  b sx sum(c).
// The second sum is that of the quantised activations, not of the exact ones. Then the error of the whole is
// sum w (x' - x), where w is small and of either sign; with the exact sum it would be sum s q (x' - x), and s
// q = w - b is about three times as large in the mean square.
#pragma once

#include "backend/cpu/kernels.h"
#include "backend/cpu/matmul_parts.h"
#include "backend/cpu/unpack_impl.h"

namespace lily::cpu {
namespace {

// ---- activations ----

typedef std::int8_t I8 __attribute__((vector_size(kLanes)));
// The 64 codes of a group as pairs (even, odd), and one of each pair.
typedef std::uint16_t BytePairs __attribute__((vector_size(64)));
typedef std::uint8_t HalfGroup __attribute__((vector_size(32)));

/// Where a group's codes and factors begin in their arrays.
struct GroupPlace {
  std::int64_t even;
  std::int64_t odd;
  std::int64_t natural;
  std::int64_t slot;
};

LILY_INLINE GroupPlace group_place(const QuantizeArgs& a, std::int64_t group) {
  if (a.by_group) {
    const std::int64_t slot = group * a.out.capacity + a.token;
    return {slot * 64, slot * 64 + 32, slot * 64, slot};
  }
  const std::int64_t in = a.row_groups * kGroup;
  const std::int64_t row = a.token * in;
  return {row + group * 32, row + in / 2 + group * 32, row + group * kGroup, a.token * a.row_groups + group};
}

LILY_INLINE void split_plane(const CodePlane& plane, const GroupPlace& place) {
  const auto pairs = load<BytePairs>(plane.natural + place.natural);
  store(plane.split + place.even, __builtin_convertvector(pairs, HalfGroup));
  store(plane.split + place.odd, __builtin_convertvector(pairs >> 8, HalfGroup));
}

LILY_INLINE void quantize_group(const float* x, const QuantizedRows& out, const GroupPlace& place) {
  F32 largest = F32{};
  for (int i = 0; i < kGroup; i += kLanes) {
    const F32 v = load_f32(x + i);
    largest = max(largest, max(v, -v));
  }
  const float absmax = reduce_max(largest);
  const float inverse = absmax > 0 ? 127.0F * 256.0F / absmax : 0.0F;
  constexpr float kToInteger = 12582912.0F;  // 1.5 * 2^23: adding it rounds to nearest even
  I32 coarse_total = I32{};
  I32 fine_total = I32{};
  for (int i = 0; i < kGroup; i += kLanes) {
    const I32 codes = as_i32(load_f32(x + i) * inverse + kToInteger) - 0x4b400000;
    const I32 high = (codes + 128) >> 8;
    store(out.high.natural + place.natural + i, __builtin_convertvector(high, I8));
    store(out.low.natural + place.natural + i, __builtin_convertvector(codes - (high << 8), I8));
    coarse_total += high;
    fine_total += codes;
  }
  split_plane(out.high, place);
  split_plane(out.low, place);
  const float scale = absmax / 127.0F;
  out.coarse.scales[place.slot] = scale;
  out.coarse.sums[place.slot] = scale * reduce_add(__builtin_convertvector(coarse_total, F32));
  out.fine.scales[place.slot] = scale / 256.0F;
  out.fine.sums[place.slot] = scale / 256.0F * reduce_add(__builtin_convertvector(fine_total, F32));
}

void quantize(const QuantizeArgs& args) {
  for (std::int64_t i = 0; i < args.groups; ++i) {
    quantize_group(args.values + i * kGroup, args.out, group_place(args, args.first_group + i));
  }
}

// ---- where results go ----

LILY_INLINE std::int64_t token_of(const MatmulArgs& a, std::int64_t i) {
  return a.tokens != nullptr ? a.tokens[i] : i;
}
LILY_INLINE float* out_row(const MatmulArgs& a, std::int64_t i, std::int64_t row) {
  const std::int64_t r = a.out_rows != nullptr ? a.out_rows[i] : i;
  return a.out + r * a.out_stride + row - a.out_origin;
}
LILY_INLINE void emit(const MatmulArgs& a, std::int64_t i, float* out, float y) {
  if (a.factors != nullptr) {
    *out = __builtin_fmaf(a.factors[i], y, *out);
  } else if (a.accumulate) {
    *out += y;
  } else {
    *out = y;
  }
}
LILY_INLINE void emit(const MatmulArgs& a, std::int64_t i, float* out, F32 y) {
  if (a.factors != nullptr) {
    store(out, load_f32(out) + y * a.factors[i]);
  } else if (a.accumulate) {
    store(out, load_f32(out) + y);
  } else {
    store(out, y);
  }
}

LILY_INLINE WeightRows weight_rows(const MatmulArgs& a, std::int64_t row) {
  const int group_shift = __builtin_ctz(static_cast<unsigned>(a.group_size));
  const std::int64_t code_stride = a.in * a.bits / 8;
  const std::int64_t scale_stride = (a.in >> group_shift) * 2;
  return {a.weight + row * code_stride,
          a.scales + row * scale_stride,
          a.biases + row * scale_stride,
          code_stride,
          scale_stride,
          a.in / kGroup,
          group_shift};
}

// ---- decode: a few rows at a time against one token ----

LILY_INLINE DecodePlane decode_plane(const CodePlane& plane, std::int64_t token, std::int64_t in) {
  const std::int8_t* split = plane.split + token * in;
  return {split, split + in / 2, plane.natural + token * in};
}

template <int kBits, Precision kPrecision, int kRows>
LILY_INLINE void decode_block(const MatmulArgs& a, std::int64_t row) {
  const WeightRows w = weight_rows(a, row);
  const GroupFactors& factors = a.quantized.factors(kPrecision);
  for (std::int64_t i = 0; i < a.count; ++i) {
    const std::int64_t token = token_of(a, i);
    const DecodeInput x = {decode_plane(a.quantized.high, token, a.in),
                           decode_plane(a.quantized.low, token, a.in), factors.scales + token * w.groups,
                           factors.sums + token * w.groups};
    float y[kRows];
    decode_rows<kBits, kPrecision, kRows>(w, x, y);
    float* out = out_row(a, i, row);
    for (int r = 0; r < kRows; ++r) emit(a, i, out + r, y[r]);
  }
}

template <int kBits, Precision kPrecision>
void decode_all(const MatmulArgs& a) {
  std::int64_t row = a.row_begin;
  for (; row + kDecodeRows <= a.row_end; row += kDecodeRows) {
    decode_block<kBits, kPrecision, kDecodeRows>(a, row);
  }
  for (; row < a.row_end; ++row) decode_block<kBits, kPrecision, 1>(a, row);
}

void matmul_decode(const MatmulArgs& args) {
  if (args.precision == Precision::kFine) {
    args.bits == 4 ? decode_all<4, Precision::kFine>(args) : decode_all<8, Precision::kFine>(args);
  } else {
    args.bits == 4 ? decode_all<4, Precision::kCoarse>(args) : decode_all<8, Precision::kCoarse>(args);
  }
}

// ---- prefill: a tile of kLanes rows against many tokens ----

constexpr int kTokenBlock = 128;  // their accumulators stay in the first-level cache
constexpr int kScaleGroups = 16;  // scales are transposed for so many groups at once

template <int kBits>
LILY_INLINE void load_tile(const WeightRows& w, int rows, std::int64_t group, Tile& tile) {
  const std::byte* first = w.codes + group * (kBits * 8);
  if constexpr (kBits == 4) {
    U32 dwords[8];
    transpose_rows(first, w.code_stride, rows, 32, dwords);
    for (int i = 0; i < 8; ++i) {
      tile.codes[i] = dwords[i] & 0x0f0f0f0fU;             // even inputs
      tile.codes[i + 8] = (dwords[i] >> 4) & 0x0f0f0f0fU;  // odd inputs
    }
  } else {
    U32 dwords[8];
    transpose_rows(first, w.code_stride, rows, 32, dwords);
    for (int i = 0; i < 8; ++i) tile.codes[i] = dwords[i];
    transpose_rows(first + 32, w.code_stride, rows, 32, dwords);
    for (int i = 0; i < 8; ++i) tile.codes[i + 8] = dwords[i];
  }
}

/// out[g], lane r = the bf16 of row r and group first_group + g.
LILY_INLINE void load_scales(const std::byte* first, std::int64_t stride, int rows, std::int64_t groups,
                             F32 (&out)[kScaleGroups]) {
  U32 pairs[8];
  transpose_rows(first, stride, rows, static_cast<int>(groups * 2), pairs);
  for (int i = 0; i < 8; ++i) {
    out[2 * i] = as_f32(pairs[i] << 16);
    out[2 * i + 1] = as_f32(pairs[i] & 0xffff0000U);
  }
}

struct PrefillBlock {
  const std::int8_t* high;  // of group 0
  const std::int8_t* low;
  std::int64_t capacity;
  const float* scales;
  const float* sums;
  std::int32_t tokens[kTokenBlock];
  int count;
  F32 acc[kTokenBlock];
};

template <int kBits, int kTokens>
LILY_INLINE void dot_plane(const Tile& tile, const std::int8_t* plane, std::int64_t base,
                           const std::int32_t* tokens, I32 (&sum)[kTokens]) {
  const std::int8_t* x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = plane + (base + tokens[t]) * 64;
  dot_tile<kBits, kTokens>(tile, x, sum);
}

template <int kBits, Precision kPrecision, int kTokens>
LILY_INLINE void accumulate_tokens(const Tile& tile, F32 scale, F32 bias, std::int64_t group, int first,
                                   PrefillBlock& block) {
  const std::int64_t base = group * block.capacity;
  I32 sum[kTokens] = {};
  dot_plane<kBits, kTokens>(tile, block.high, base, block.tokens + first, sum);
  if constexpr (kPrecision == Precision::kFine) {
    for (int t = 0; t < kTokens; ++t) sum[t] <<= 8;
    dot_plane<kBits, kTokens>(tile, block.low, base, block.tokens + first, sum);
  }
  for (int t = 0; t < kTokens; ++t) {
    const std::int64_t slot = base + block.tokens[first + t];
    const F32 product = __builtin_convertvector(sum[t], F32) * (scale * block.scales[slot]);
    block.acc[first + t] += bias * block.sums[slot] + product;
  }
}

template <int kBits, Precision kPrecision>
LILY_INLINE void accumulate_block(const Tile& tile, F32 scale, F32 bias, std::int64_t group,
                                  PrefillBlock& block) {
  int t = 0;
  for (; t + 8 <= block.count; t += 8) {
    accumulate_tokens<kBits, kPrecision, 8>(tile, scale, bias, group, t, block);
  }
  for (; t + 2 <= block.count; t += 2) {
    accumulate_tokens<kBits, kPrecision, 2>(tile, scale, bias, group, t, block);
  }
  if (t < block.count) accumulate_tokens<kBits, kPrecision, 1>(tile, scale, bias, group, t, block);
}

// A tile's 16 rows are walked side by side, too short for the hardware to follow: so while one group of a
// tile is worked on, the share of a group is fetched of the next tile, which lies right behind it, in order.
// An expert's weights come from memory for a handful of tokens.
template <int kBits, int kRows>
LILY_INLINE void prefetch_next_rows(const WeightRows& w, std::int64_t group) {
  constexpr std::int64_t kShare = kRows * kBits * 8;
  const std::byte* codes = w.codes + kRows * w.code_stride + group * kShare;
  for (std::int64_t i = 0; i < kShare; i += 64) __builtin_prefetch(codes + i);
  __builtin_prefetch(w.scales + kRows * w.scale_stride + group * kRows * 2);
  __builtin_prefetch(w.biases + kRows * w.scale_stride + group * kRows * 2);
}

template <int kBits, Precision kPrecision>
void prefill_tile(const WeightRows& w, int rows, PrefillBlock& block) {
  for (int t = 0; t < block.count; ++t) block.acc[t] = F32{};
  for (std::int64_t g0 = 0; g0 < w.groups; g0 += kScaleGroups) {
    const std::int64_t n = w.groups - g0 < kScaleGroups ? w.groups - g0 : kScaleGroups;
    F32 scales[kScaleGroups];
    F32 biases[kScaleGroups];
    load_scales(w.scales + g0 * 2, w.scale_stride, rows, n, scales);
    load_scales(w.biases + g0 * 2, w.scale_stride, rows, n, biases);
    for (std::int64_t g = 0; g < n; ++g) {
      prefetch_next_rows<kBits, kLanes>(w, g0 + g);
      Tile tile;
      load_tile<kBits>(w, rows, g0 + g, tile);
      accumulate_block<kBits, kPrecision>(tile, scales[g], biases[g], g0 + g, block);
    }
  }
}

LILY_INLINE void emit_tile(const MatmulArgs& a, std::int64_t first, std::int64_t row, int rows,
                           const PrefillBlock& block) {
  for (int t = 0; t < block.count; ++t) {
    float* out = out_row(a, first + t, row);
    if (rows == kLanes) {
      emit(a, first + t, out, block.acc[t]);
    } else {
      for (int r = 0; r < rows; ++r) emit(a, first + t, out + r, block.acc[t][r]);
    }
  }
}

template <int kBits, Precision kPrecision>
void prefill_all(const MatmulArgs& a) {
  const QuantizedRows& x = a.quantized;
  PrefillBlock block;
  block.high = kBits == 4 ? x.high.split : x.high.natural;
  block.low = kBits == 4 ? x.low.split : x.low.natural;
  block.capacity = x.capacity;
  block.scales = x.factors(kPrecision).scales;
  block.sums = x.factors(kPrecision).sums;
  for (std::int64_t first = 0; first < a.count; first += kTokenBlock) {
    block.count = static_cast<int>(a.count - first < kTokenBlock ? a.count - first : kTokenBlock);
    for (int t = 0; t < block.count; ++t) {
      block.tokens[t] = static_cast<std::int32_t>(token_of(a, first + t));
    }
    for (std::int64_t row = a.row_begin; row < a.row_end; row += kLanes) {
      const int rows = static_cast<int>(a.row_end - row < kLanes ? a.row_end - row : kLanes);
      prefill_tile<kBits, kPrecision>(weight_rows(a, row), rows, block);
      emit_tile(a, first, row, rows, block);
    }
  }
}

void matmul_prefill(const MatmulArgs& args) {
  if (args.precision == Precision::kFine) {
    args.bits == 4 ? prefill_all<4, Precision::kFine>(args) : prefill_all<8, Precision::kFine>(args);
  } else {
    args.bits == 4 ? prefill_all<4, Precision::kCoarse>(args) : prefill_all<8, Precision::kCoarse>(args);
  }
}

// ---- exact: f32 activations and weights widened to f32 ----

/// A block of kGroup codes and what its two halves are multiplied with: they differ in groups of 32.
struct BlockWeights {
  const std::byte* codes;
  float scale[2];
  float bias[2];
};
LILY_INLINE BlockWeights block_weights(const WeightRows& w, int bits, std::int64_t block) {
  const std::int64_t first = ((block * kGroup) >> w.group_shift) * 2;
  const std::int64_t second = ((block * kGroup + kGroup / 2) >> w.group_shift) * 2;
  return {w.codes + block * bits * 8,
          {bf16_at(w.scales + first), bf16_at(w.scales + second)},
          {bf16_at(w.biases + first), bf16_at(w.biases + second)}};
}

/// The block's 64 weights in their order.
template <int kBits>
LILY_INLINE void widen_block(const BlockWeights& w, F32 (&out)[kGroup / kLanes]) {
  constexpr int kHalf = kGroup / kLanes / 2;
  if constexpr (kBits == 4) {
    for (int i = 0; i < kGroup / kLanes; i += 2) {
      const U32 bytes = widen_bytes(w.codes + i / 2 * kLanes);
      const F32 even = to_f32(bytes & 15U) * w.scale[i / kHalf] + w.bias[i / kHalf];
      const F32 odd = to_f32(bytes >> 4) * w.scale[i / kHalf] + w.bias[i / kHalf];
      out[i] = interleave<0>(even, odd, Lanes{});
      out[i + 1] = interleave<kLanes>(even, odd, Lanes{});
    }
  } else {
    if constexpr (kBits == 8) {
      for (int i = 0; i < kGroup / kLanes; ++i) out[i] = to_f32(widen_bytes(w.codes + i * kLanes));
    } else {
      unpack_block<kBits>(w.codes, out);
    }
    for (int i = 0; i < kGroup / kLanes; ++i) out[i] = out[i] * w.scale[i / kHalf] + w.bias[i / kHalf];
  }
}

template <int kBits>
LILY_INLINE void dequantize_row(const WeightRows& w, float* out) {
  for (std::int64_t g = 0; g < w.groups; ++g) {
    F32 weights[kGroup / kLanes];
    widen_block<kBits>(block_weights(w, kBits, g), weights);
    for (int i = 0; i < kGroup / kLanes; ++i) store(out + g * kGroup + i * kLanes, weights[i]);
  }
}

void dequantize(const DequantizeArgs& a) {
  const WeightRows row = {
      a.weight, a.scales, a.biases, 0, 0, a.in / kGroup, __builtin_ctz(static_cast<unsigned>(a.group_size))};
  switch (a.bits) {
    case 2:
      return dequantize_row<2>(row, a.out);
    case 3:
      return dequantize_row<3>(row, a.out);
    case 4:
      return dequantize_row<4>(row, a.out);
    case 5:
      return dequantize_row<5>(row, a.out);
    case 6:
      return dequantize_row<6>(row, a.out);
    default:
      return dequantize_row<8>(row, a.out);
  }
}

// Every output is one chain of kLanes partial sums, input by input, whichever of the next two functions
// computes it.

/// Rows widened beforehand against several tokens.
template <int kRows, int kTokens>
LILY_INLINE void dot_widened(const float* w, std::int64_t in, const float* const (&x)[kTokens],
                             float (&y)[kRows][kTokens]) {
  F32 acc[kRows][kTokens] = {};
  for (std::int64_t c = 0; c < in; c += kLanes) {
    F32 xs[kTokens];
    for (int t = 0; t < kTokens; ++t) xs[t] = load_f32(x[t] + c);
    for (int r = 0; r < kRows; ++r) {
      const F32 ws = load_f32(w + r * in + c);
      for (int t = 0; t < kTokens; ++t) acc[r][t] += ws * xs[t];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTokens; ++t) y[r][t] = reduce_add(acc[r][t]);
  }
}

/// One token, widening on the way.
template <int kBits, int kRows>
LILY_INLINE void dot_packed(const WeightRows& w, const float* x, float (&y)[kRows]) {
  F32 acc[kRows] = {};
  for (std::int64_t g = 0; g < w.groups; ++g) {
    for (int r = 0; r < kRows; ++r) {
      const WeightRows row = {w.codes + r * w.code_stride,
                              w.scales + r * w.scale_stride,
                              w.biases + r * w.scale_stride,
                              0,
                              0,
                              w.groups,
                              w.group_shift};
      F32 weights[kGroup / kLanes];
      widen_block<kBits>(block_weights(row, kBits, g), weights);
      for (int i = 0; i < kGroup / kLanes; ++i) acc[r] += weights[i] * load_f32(x + g * kGroup + i * kLanes);
    }
  }
  for (int r = 0; r < kRows; ++r) y[r] = reduce_add(acc[r]);
}

template <int kBits, int kRows>
LILY_INLINE void exact_one_token(const MatmulArgs& a, std::int64_t row, std::int64_t i) {
  float y[kRows];
  dot_packed<kBits, kRows>(weight_rows(a, row), a.values + token_of(a, i) * a.in, y);
  float* out = out_row(a, i, row);
  for (int r = 0; r < kRows; ++r) emit(a, i, out + r, y[r]);
}

template <int kRows, int kTokens>
LILY_INLINE void exact_block(const MatmulArgs& a, const float* w, std::int64_t row, std::int64_t i) {
  const float* x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = a.values + token_of(a, i + t) * a.in;
  float y[kRows][kTokens];
  dot_widened<kRows, kTokens>(w, a.in, x, y);
  for (int t = 0; t < kTokens; ++t) {
    float* out = out_row(a, i + t, row);
    for (int r = 0; r < kRows; ++r) emit(a, i + t, out + r, y[r][t]);
  }
}

/// Rows [row, row + rows), widened in scratch, against tokens [i, i + kTokens).
template <int kTokens>
LILY_INLINE void exact_rows(const MatmulArgs& a, std::int64_t row, std::int64_t rows, std::int64_t i) {
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4) exact_block<4, kTokens>(a, a.scratch + r * a.in, row + r, i);
  for (; r < rows; ++r) exact_block<1, kTokens>(a, a.scratch + r * a.in, row + r, i);
}

template <int kBits>
void exact_all(const MatmulArgs& a) {
  constexpr std::int64_t kFewTokens = 2;
  if (a.count <= kFewTokens) {
    for (std::int64_t i = 0; i < a.count; ++i) {
      std::int64_t row = a.row_begin;
      for (; row + 4 <= a.row_end; row += 4) exact_one_token<kBits, 4>(a, row, i);
      for (; row < a.row_end; ++row) exact_one_token<kBits, 1>(a, row, i);
    }
    return;
  }
  constexpr std::int64_t kBlock = 16;  // rows a read of the activations
  for (std::int64_t row = a.row_begin; row < a.row_end; row += kBlock) {
    const std::int64_t rows = a.row_end - row < kBlock ? a.row_end - row : kBlock;
    for (std::int64_t r = 0; r < rows; ++r)
      dequantize_row<kBits>(weight_rows(a, row + r), a.scratch + r * a.in);
    std::int64_t i = 0;
    for (; i + 4 <= a.count; i += 4) exact_rows<4>(a, row, rows, i);
    for (; i < a.count; ++i) exact_rows<1>(a, row, rows, i);
  }
}

void matmul_exact(const MatmulArgs& args) {
  switch (args.bits) {
    case 2:
      return exact_all<2>(args);
    case 3:
      return exact_all<3>(args);
    case 4:
      return exact_all<4>(args);
    case 5:
      return exact_all<5>(args);
    case 6:
      return exact_all<6>(args);
    default:
      return exact_all<8>(args);
  }
}

}  // namespace
}  // namespace lily::cpu
