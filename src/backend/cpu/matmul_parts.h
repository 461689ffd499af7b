// What the integer products of every instruction set share: the inputs, named.
//
// Each isa_<name>.h implements, for kTileRows = kLanes rows of a matrix,
//   transpose_rows(first, stride, rows, bytes, out)  out[i], lane r = dword i of row r (32 bytes a row, of
//   which `bytes`
//                                                    are read, the rest is zero; rows past the last repeat
//                                                    it)
//   dot_tile<bits, tokens>(tile, x, sum)             sum[t], lane r = codes of row r times the 64 codes at
//   x[t] decode_rows<bits, rows>(w, x, y)                 y[r] = row r of w times one token
#pragma once

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
  std::int64_t groups;
};

/// One token's quantised activations, laid out by token.
struct DecodeInput {
  const std::int8_t* even;
  const std::int8_t* odd;
  const std::int8_t* natural;
  const float* scales;
  const float* sums;
};

}  // namespace
}  // namespace lily::cpu
