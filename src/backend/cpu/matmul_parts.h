// What the integer products of every instruction set share: the inputs, named.
//
// Each isa_<name>.h implements, for tiles of kLanes rows of a matrix:
//
//  - transpose_rows(first, stride, rows, bytes, out): out[i], lane r = dword i of row r. A row has 32 bytes,
//  of which
//    `bytes` are read and the rest is zero; rows past the last repeat it.
//  - dot_tile<bits, tokens>(tile, x, sum): sum[t], lane r += codes of row r times the 64 codes at x[t].
//  - decode_rows<bits, precision, rows>(w, x, y): y[r] = row r of w times one token.
//  - widen_bytes(p): lane i = byte i.
//  - dot_step(sum, codes, x): sum plus the four codes of each dword times the four bytes of x, as dot_tile
//  adds up
//    4-bit codes; total_of(sum): as one number a lane. kDotChains sums keep the instruction busy.
#pragma once

#include "backend/cpu/kernels.h"
#include "backend/cpu/vector_impl.h"

namespace lily::cpu {
namespace {

/// The codes of one group of kLanes rows: codes[i], lane r, holds the four codes of row r that meet the
/// activations' bytes 4 i .. 4 i + 3.
struct Tile {
  U32 codes[16];
};

/// Some consecutive rows of a matrix.
struct WeightRows {
  const std::byte* codes;
  const std::byte* scales;
  const std::byte* biases;
  std::int64_t code_stride;   ///< bytes a row
  std::int64_t scale_stride;  ///< bytes a row
  std::int64_t groups;        ///< of kGroup inputs, whatever the weights' own
  int group_shift;            ///< 2^group_shift inputs share a scale
};

// Decoding reads every weight once, so it goes as fast as memory is read, and memory is read fastest in the
// order of addresses. Walking rows side by side is not that order (four rows a kibibyte apart got half the
// bandwidth on Zen 4, with or without prefetching each of them). So the lines to come
// are asked for in order.
constexpr int kDecodeRows = 4;
constexpr std::int64_t kPrefetchBytes = 4096;

/// The `line`th line after the block that begins with these rows, some way ahead. Past the end it does
/// nothing.
LILY_INLINE void prefetch(const WeightRows& w, std::int64_t line) {
  __builtin_prefetch(w.codes + kPrefetchBytes + line * 64);
}
LILY_INLINE void prefetch_scales(const WeightRows& w, int row, std::int64_t group) {
  constexpr int kRowsAhead = 8;
  __builtin_prefetch(w.scales + (row + kRowsAhead) * w.scale_stride + group * 2);
  __builtin_prefetch(w.biases + (row + kRowsAhead) * w.scale_stride + group * 2);
}

/// One plane of one token's quantised activations, laid out by token.
struct DecodePlane {
  const std::int8_t* even;
  const std::int8_t* odd;
  const std::int8_t* natural;
};
struct DecodeInput {
  DecodePlane high;
  DecodePlane low;
  const float* scales;
  const float* sums;
};

}  // namespace
}  // namespace lily::cpu
