// How matrices lie in device memory: one layout that the tensor cores' A fragments can be read from directly,
// for decoding (integer products), prefill (bf16 products) and the Hopper kernels alike.
//
//   [expert][tile of 256 channels][step of 64 inputs] blocks of 9,216 bytes
//     codes   [half 2][bank 2][warp 4][lane 32][4 words]     8,192 bytes
//     affine  [half 2][bank 2][warp 4][g 8]{s, b of row g; s, b of row g + 8}  bf16, 1,024 bytes
//
// A *unit* is the 16 rows of one (tile, half, bank, warp): one A fragment. In a word for lane (g = lane / 4,
// c = lane % 4) and k16 step kk, nibbles i and i + 4 are the low and high element of A register i: row g or
// g + 8, inputs 2c, 2c + 1 or 2c + 8, 2c + 9. Masked by bytes the same word holds row g (low nibbles) and
// row g + 8 (high nibbles) at inputs 2c, 2c + 8, 2c + 1, 2c + 9, which is what integer products want.
//
// The two units of a *pair* (banks 0 and 1) interleave so that a lane's four values of one token are
// neighbours: channel = 32 pair + 4 g + 2 bank + (row >= 8). In a gated matrix bank 0 is the gate and bank 1
// the up projection of the same columns: column = 16 pair + 2 g + (row >= 8).
//
// s is stored times 2^125 (row g) or 2^121 (row g + 8) and b times 2^-8: a masked nibble read as bf16 is the
// subnormal q 2^-133 (16 q 2^-133), so one fused multiply-add gives the correctly rounded (s q + b) 2^-8.
//
// Codes of 5 to 8 bits are two planes of 4-bit ones, high nibbles first, over the same inputs: w = (16 s) hi
// + b and s lo. A matrix of 4 bits or less stacked with such gets an empty high plane. Of groups of 128 both
// steps get the scale.
#pragma once

#include <cstdint>

namespace lily::cuda {

inline constexpr int kTileChannels = 256;
inline constexpr int kGroup = 64;              ///< inputs of a step: one quantisation group
inline constexpr int kBlockBytes = 9216;       ///< one tile, one step
inline constexpr int kBlockCodes = 8192;       ///< of them codes
inline constexpr float kScaleLow = 0x1p125F;   ///< of rows g
inline constexpr float kScaleHigh = 0x1p121F;  ///< of rows g + 8
inline constexpr float kBiasFactor = 0x1p-8F;
inline constexpr float kProductScale = 256.0F;  ///< what an epilogue multiplies a bf16 product by
inline constexpr float kLargestScale = 4.0F;    ///< |s| must stay below, 16 s for more than 4 bits

/// A matrix, or equally shaped matrices of all experts, in device memory.
struct Packed {
  const std::uint8_t* data = nullptr;
  int groups = 0;    ///< inputs / 64
  int planes = 1;    ///< 1: codes of up to 4 bits, 2: of up to 8
  int channels = 0;  ///< outputs, padded to whole pairs (32; 16 columns when gated)
  bool gated = false;

#ifdef __CUDACC__
#define LILY_HD __host__ __device__
#else
#define LILY_HD
#endif
  LILY_HD int steps() const { return groups * planes; }
  LILY_HD int inputs() const { return groups * kGroup; }
  LILY_HD int pairs() const { return channels / 32; }  // of a gated matrix, gate and up rows are channels
  LILY_HD int tiles() const { return (channels + kTileChannels - 1) / kTileChannels; }
  LILY_HD std::int64_t expert_bytes() const {
    return static_cast<std::int64_t>(tiles()) * steps() * kBlockBytes;
  }
  /// Block of step 0, then kBlockBytes a step.
  LILY_HD const std::uint8_t* tile(int expert, int t) const {
    return data + expert * expert_bytes() + static_cast<std::int64_t>(t) * steps() * kBlockBytes;
  }
};

/// Where unit `unit` = 2 pair + bank keeps its codes in a block: 512 bytes; its affine lies at
/// kBlockCodes + unit_offset / 8.
LILY_HD inline int unit_offset(int unit) {
  const int pair = unit >> 1;
  return ((pair >> 2) & 1) * 4096 + (unit & 1) * 2048 + (pair & 3) * 512;
}

}  // namespace lily::cuda
