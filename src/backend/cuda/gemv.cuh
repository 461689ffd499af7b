// Products of packed matrices with a few rows of activations: what decoding is made of.
//
// An f32 activation becomes two int8 digits, x = scale (d1 + d2 / 254), one scale for 64 inputs: within
// 1.6e-5 of the group's largest element, so nothing is lost beside bf16 weights' own rounding. The digits of
// a row are two columns of the integer tensor cores' B operand; four rows fill it, at no extra cost over one.
// Every sum has a fixed order that does not depend on how many rows are computed.
#pragma once

#include "backend/cuda/kernels.h"
#include "backend/cuda/ptx.cuh"

namespace lily::cuda {

inline constexpr int kGemvThreads = 512;
inline constexpr int kGemvWarps = 16;
inline constexpr int kUnitRows = 16;

/// Quantised activations of kTokens rows in shared memory.
struct Digits {
  std::uint32_t* words;  ///< [group][column = 2 token + digit][c 4][k16 step 4], inputs as in a packed word
  float2* affine;  ///< [group][token]: what 254 d1 + d2 is multiplied by, the inputs' sum; see kSumScale
};
LILY_HD constexpr std::size_t digits_bytes(int groups, int tokens) {
  return static_cast<std::size_t>(groups) * static_cast<std::size_t>(tokens) * (2 * 64 + 8);
}
template <int kTokens>
__device__ Digits digits_at(std::uint8_t* memory, int groups) {
  Digits d;
  d.words = reinterpret_cast<std::uint32_t*>(memory);
  d.affine = reinterpret_cast<float2*>(memory + groups * kTokens * 128);
  return d;
}

/// Inputs of a quad: 2c, 2c + 1, 2c + 8, 2c + 9 of k16 step kk, in groups of 16 quads.
__device__ __forceinline__ int quad_input(int quad) {
  return (quad >> 4) * kGroup + ((quad >> 2) & 3) * 16 + (quad & 3) * 2;
}
__device__ __forceinline__ float4 load_quad(const float* x, int quad) {
  const float2 p = __ldcg(reinterpret_cast<const float2*>(x + quad_input(quad)));
  const float2 q = __ldcg(reinterpret_cast<const float2*>(x + quad_input(quad) + 8));
  return make_float4(p.x, p.y, q.x, q.y);
}

/// The same from shared memory.
__device__ __forceinline__ float4 quad_of(const float* x, int quad) {
  const float2 p = *reinterpret_cast<const float2*>(x + quad_input(quad));
  const float2 q = *reinterpret_cast<const float2*>(x + quad_input(quad) + 8);
  return make_float4(p.x, p.y, q.x, q.y);
}

/// The fused operations are spelled out wherever the compiler could choose: two kernels must not round
/// differently.
__device__ __forceinline__ float add_squares(float sum, float4 x) {
  return __fmaf_rn(x.w, x.w, __fmaf_rn(x.z, x.z, __fmaf_rn(x.y, x.y, __fmaf_rn(x.x, x.x, sum))));
}

/// Adding it rounds a float below 2^22 to an integer, whose low byte is then the sum's.
inline constexpr float kRounder = 0x1.8p23F;
/// What sums are kept times: an activation's scale times 2^-60, a weight's times 2^125.
inline constexpr float kSumScale = 0x1p65F;
inline constexpr float kDigitScale = kSumScale / kScaleLow;
static_assert(kDigitScale == 0x1p-60F);

/// The largest of each half warp, of what is not negative.
__device__ __forceinline__ float half_warp_max(float v) {
  const bool upper = (threadIdx.x & 16) != 0;
  const std::uint32_t bits = __float_as_uint(v);
  const std::uint32_t low = __reduce_max_sync(0xffffffffU, upper ? 0U : bits);
  const std::uint32_t high = __reduce_max_sync(0xffffffffU, upper ? bits : 0U);
  return __uint_as_float(upper ? high : low);
}
__device__ __forceinline__ int half_warp_sum(int v) {
  const bool upper = (threadIdx.x & 16) != 0;
  const int low = __reduce_add_sync(0xffffffffU, upper ? 0 : v);
  const int high = __reduce_add_sync(0xffffffffU, upper ? v : 0);
  return upper ? high : low;
}
__device__ __forceinline__ std::uint32_t low_bytes(const float (&x)[4]) {
  const std::uint32_t first = __byte_perm(__float_as_uint(x[0]), __float_as_uint(x[1]), 0x0040);
  const std::uint32_t second = __byte_perm(__float_as_uint(x[2]), __float_as_uint(x[3]), 0x0040);
  return __byte_perm(first, second, 0x5410);
}

/// Quantises quad `quad` of `token`; all lanes of a warp call it, half a warp a group.
template <int kTokens>
__device__ void put_digits(const Digits& d, int quad, int token, float4 x, bool valid, float factor = 1.0F) {
  const float largest = half_warp_max(fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w))));
  const float inverse = largest > 0 ? __fdividef(127.0F, largest) : 0.0F;
  const float values[4] = {x.x, x.z, x.y, x.w};  // byte order of a packed word
  float whole[4];
  float rest[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float v = __fmul_rn(values[i], inverse);  // |v| <= 127 but for one rounding
    whole[i] = __fadd_rn(v, kRounder);
    rest[i] = __fmaf_rn(__fsub_rn(v, __fsub_rn(whole[i], kRounder)), 254.0F, kRounder);
  }
  const std::uint32_t first = low_bytes(whole);
  const std::uint32_t second = low_bytes(rest);
  constexpr int kOnes = 0x01010101;
  const int sum = half_warp_sum(254 * __dp4a(static_cast<int>(first), kOnes, 0) +
                                __dp4a(static_cast<int>(second), kOnes, 0));
  if (!valid) return;
  const int group = quad >> 4;
  const int at = ((group * 2 * kTokens + 2 * token) * 4 + (quad & 3)) * 4 + ((quad >> 2) & 3);
  d.words[at] = first;
  d.words[at + 16] = second;
  if ((quad & 15) == 0) {
    const float scale = largest * (1.0F / (127.0F * 254.0F)) * factor;
    d.affine[group * kTokens + token] =
        make_float2(scale * kDigitScale, scale * static_cast<float>(sum) * (kSumScale / kBiasFactor));
  }
}

struct Weighted {
  float4 value;
  float weight = 1.0F;
};
/// Quantises all quads of `token`, kAtOnce to a thread at a time: load(quad, valid) of each before the first
/// is used, then put_digits() with finish(quad, value), which all lanes of a warp call together.
template <int kTokens, int kAtOnce, class Load, class Finish>
__device__ __forceinline__ void put_all_digits(const Digits& d, int quads, int token, Load&& load,
                                               Finish&& finish) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  for (int first = static_cast<int>(threadIdx.x & ~31U); first < quads; first += kAtOnce * kGemvThreads) {
    decltype(load(0, false)) values[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int quad = first + i * kGemvThreads + lane;
      values[i] = load(quad, quad < quads);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i * kGemvThreads >= quads) break;
      const int quad = first + i * kGemvThreads + lane;
      const Weighted x = finish(quad, values[i]);
      put_digits<kTokens>(d, quad, token, x.value, quad < quads, x.weight);
    }
  }
}

/// A norm's gain on its way while the kernel waits: the first quad of each thread, all there are up to a
/// hidden size of 2048.
struct EarlyGain {
  float4 first = make_float4(0, 0, 0, 0);
  __device__ EarlyGain(const float* gain, int hidden) {
    if (static_cast<int>(threadIdx.x) < hidden / 4) first = load_quad(gain, static_cast<int>(threadIdx.x));
  }
};

/// gain * x of kTokens rows as digits; the RMS factors, which the products are to be multiplied by, go to
/// `inverse_rms` [kTokens], to be read after the next barrier. Ends with a barrier for the digits.
template <int kTokens>
__device__ void normed_digits(const Digits& d, const float* const (&rows)[kTokens], const float* gain,
                              const EarlyGain& early, int hidden, float eps, float* inverse_rms) {
  __shared__ float squares[kTokens][kGemvWarps];
  const int quads = hidden / 4;
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int warp = static_cast<int>(threadIdx.x >> 5);
#pragma unroll 2
  for (int token = 0; token < kTokens; ++token) {
    float square = 0;
    for (int base = warp * 32; base < quads; base += kGemvThreads) {
      const int quad = base + lane;
      const bool valid = quad < quads;
      float4 x = make_float4(0, 0, 0, 0);
      if (valid && rows[token] != nullptr) {
        const float4 w = base < kGemvThreads ? early.first : load_quad(gain, quad);
        x = load_quad(rows[token], quad);
        square = add_squares(square, x);
        x = make_float4(x.x * w.x, x.y * w.y, x.z * w.z, x.w * w.w);
      }
      put_digits<kTokens>(d, quad, token, x, valid);
    }
    square = warp_sum(square);
    if (lane == 0) squares[token][warp] = square;
  }
  __syncthreads();
  if (threadIdx.x < kTokens) {
    float total = 0;
    for (int w = 0; w < kGemvWarps; ++w) total += squares[threadIdx.x][w];
    inverse_rms[threadIdx.x] = rsqrtf(total / static_cast<float>(hidden) + eps);
  }
}

/// Sums of a lane: rows g and g + 8 of a unit, token c (and 4 + c).
template <int kTokens>
struct UnitSums {
  static constexpr int kColumns = kTokens > 4 ? 2 : 1;
  float low[kColumns] = {};
  float high[kColumns] = {};
};

/// A lane's view of the digits of one group, and how far the next group's are. Columns that no token has
/// repeat others: what comes of them is dropped.
template <int kTokens>
struct LaneDigits {
  static constexpr int kWordStride = 2 * kTokens * 16;
  const std::uint32_t* words;
  const float2* affine;

  __device__ LaneDigits(const Digits& d, int group) {
    const int lane = static_cast<int>(threadIdx.x & 31);
    const int column = (lane >> 2) % (2 * kTokens);
    words = d.words + group * kWordStride + (column * 4 + (lane & 3)) * 4;
    affine = d.affine + group * kTokens + (lane & 3) % kTokens;
  }
};

/// One step of 64 inputs of one unit; its digits are `ahead` groups behind `d`.
template <int kTokens>
__device__ __forceinline__ void add_step(UnitSums<kTokens>& sums, uint4 codes, uint2 affine,
                                         const LaneDigits<kTokens>& d, int ahead) {
  // Row g + 8's codes stay in the high nibbles, sixteen times too large: their scale is stored for that.
  constexpr std::uint32_t kLow = 0x0f0f0f0fU;
  constexpr std::uint32_t kHigh = 0xf0f0f0f0U;
  static_assert(kScaleLow == 16.0F * kScaleHigh);
  const std::uint32_t first[4] = {codes.x & kLow, codes.x & kHigh, codes.y & kLow, codes.y & kHigh};
  const std::uint32_t second[4] = {codes.z & kLow, codes.z & kHigh, codes.w & kLow, codes.w & kHigh};
#pragma unroll
  for (int n = 0; n < UnitSums<kTokens>::kColumns; ++n) {
    const uint4 b =
        *reinterpret_cast<const uint4*>(d.words + ahead * LaneDigits<kTokens>::kWordStride + n * 128);
    const float2 scale = d.affine[ahead * kTokens + n * 4];
    int product[4] = {0, 0, 0, 0};  // row g: digits 1 and 2 of token c; row g + 8 the same
    mma_u8s8(product, first, b.x, b.y);
    mma_u8s8(product, second, b.z, b.w);
    const float low = static_cast<float>(product[0] * 254 + product[1]);
    const float high = static_cast<float>(product[2] * 254 + product[3]);
    sums.low[n] = __fmaf_rn(bf16_low(affine.x), __fmul_rn(scale.x, low),
                            __fmaf_rn(bf16_high(affine.x), scale.y, sums.low[n]));
    sums.high[n] = __fmaf_rn(bf16_low(affine.y), __fmul_rn(scale.x, high),
                             __fmaf_rn(bf16_high(affine.y), scale.y, sums.high[n]));
  }
}

/// Where a lane's codes and affine of a unit lie, of one step.
struct UnitPointers {
  const std::uint8_t* codes;
  const std::uint8_t* affine;

  /// `tile`: the unit's block of step 0.
  __device__ UnitPointers(const std::uint8_t* tile, int unit, int step) {
    const int lane = static_cast<int>(threadIdx.x & 31);
    const std::uint8_t* block = tile + step * kBlockBytes;
    codes = block + unit_offset(unit) + lane * 16;
    affine = block + kBlockCodes + unit_offset(unit) / 8 + (lane >> 2) * 8;
  }
};

inline constexpr int kUnitLines =
    5;  ///< of 128 bytes that a unit's step touches: four of codes, one of affine
__device__ __forceinline__ void prefetch_unit_line(const std::uint8_t* block, int unit, int line) {
  prefetch_l2(line < 4 ? block + unit_offset(unit) + line * 128
                       : block + kBlockCodes + unit_offset(unit) / 8);
}

/// Steps that a lane has under way: six registers each.
template <int kLoads>
struct UnitLoads {
  uint4 codes[kLoads];
  uint2 affine[kLoads];

  __device__ __forceinline__ void load(int slot, const UnitPointers& p, int ahead) {
    codes[slot] = load_weights16(p.codes + ahead * kBlockBytes);
    affine[slot] = load_weights8(p.affine + ahead * kBlockBytes);
  }
};

/// Products of all units of `matrix` with `digits`, 16 / kSplits units a block at a time, a unit's inputs
/// split over kSplits warps, kLoads steps under way. Begin with prefetch(), which reads weights only.
/// `put(unit, row, token, value)` gets each sum once; with kGated it is put(unit of the gate, row, token,
/// gate, up).
template <int kTokens, int kSplits, bool kGated, int kLoads = 4>
class Products {
 public:
  static constexpr int kUnits = kGemvWarps / kSplits;
  static constexpr int kPartialFloats = kSplits > 1 ? kGemvWarps* kTokens* kUnitRows : 1;
  /// Where units are split: sums that put() gets of a round, the i-th from thread i.
  static constexpr int kOutputs = (kGated ? kUnits / 2 : kUnits) * kTokens * kUnitRows;
  struct Output {
    int index;  ///< unit of the round (gated: pair of units)
    int token;
    int row;
  };
  __device__ static Output output(int i) {
    return {i / (kUnitRows * kTokens), i / kUnitRows % kTokens, i % kUnitRows};
  }

  __device__ Products(const Packed& matrix, int expert, int block, int blocks)
      : first_(matrix.tile(expert, 0)),
        tile_bytes_(static_cast<std::int64_t>(matrix.steps()) * kBlockBytes),
        groups_(matrix.groups),
        units_(matrix.pairs() * 2),
        stride_(blocks * kUnits),
        base_(block * kUnits) {
    const int warp = static_cast<int>(threadIdx.x >> 5);
    const int split = warp % kSplits;
    begin_ = matrix.steps() * split / kSplits;
    end_ = matrix.steps() * (split + 1) / kSplits;
    in_block_ = warp / kSplits;
  }

  __device__ __forceinline__ void prefetch() { load_batch(base_ + in_block_, begin_); }
  /// And the steps after those as far as the L2, five lines each: where there is time until the inputs come.
  __device__ __forceinline__ void prefetch_more() {
    const int unit = base_ + in_block_;
    const int lane = static_cast<int>(threadIdx.x & 31);
    const int step = begin_ + kLoads + lane / kUnitLines;
    if (unit < units_ && step < end_ && lane < 32 / kUnitLines * kUnitLines)
      prefetch_unit_line(first_ + (unit >> 4) * tile_bytes_ + step * kBlockBytes, unit, lane % kUnitLines);
  }

  template <class Put>
  __device__ __forceinline__ void run(const Digits& digits, float* partial, Put&& put) {
    for (int base = base_; base < units_; base += stride_) {
      const int unit = base + in_block_;
      UnitSums<kTokens> sums;
      for (int step = begin_; step < end_; step += kLoads) {
        const bool last = step + kLoads >= end_;
        // A batch lies in one plane or is taken step by step: planes are as long as batches are, or shorter.
        const int group = step < groups_ ? step : step - groups_;
        if (step + kLoads <= end_ && group + kLoads <= groups_) {
          add_batch(sums, LaneDigits<kTokens>(digits, group), last ? unit + stride_ : unit,
                    last ? begin_ : step + kLoads);
        } else {
          add_tail(sums, digits, step);
          load_batch(last ? unit + stride_ : unit, last ? begin_ : step + kLoads);
        }
      }
      finish(sums, base, unit, partial, put);
    }
  }

 private:
  __device__ __forceinline__ UnitPointers pointers(int unit, int step) const {
    return UnitPointers(first_ + (unit >> 4) * tile_bytes_, unit, step);
  }
  __device__ __forceinline__ void load_batch(int unit, int step) {
    if (unit >= units_) return;
    const UnitPointers next = pointers(unit, step);
#pragma unroll
    for (int slot = 0; slot < kLoads; ++slot) {
      if (step + slot < end_) loads_.load(slot, next, slot);
    }
  }
  // All of a batch; each register is filled again as soon as it has been used.
  __device__ __forceinline__ void add_batch(UnitSums<kTokens>& sums, const LaneDigits<kTokens>& digits,
                                            int next_unit, int next_step) {
    if (next_unit < units_ && next_step + kLoads <= end_) {
      const UnitPointers next = pointers(next_unit, next_step);
#pragma unroll
      for (int slot = 0; slot < kLoads; ++slot) {
        add_step<kTokens>(sums, loads_.codes[slot], loads_.affine[slot], digits, slot);
        loads_.load(slot, next, slot);
      }
    } else {
#pragma unroll
      for (int slot = 0; slot < kLoads; ++slot)
        add_step<kTokens>(sums, loads_.codes[slot], loads_.affine[slot], digits, slot);
      load_batch(next_unit, next_step);
    }
  }
  __device__ __forceinline__ void add_tail(UnitSums<kTokens>& sums, const Digits& digits, int step) {
#pragma unroll
    for (int slot = 0; slot < kLoads; ++slot) {
      const int here = step + slot;
      if (here < end_) {
        const LaneDigits<kTokens> d(digits, here < groups_ ? here : here - groups_);
        add_step<kTokens>(sums, loads_.codes[slot], loads_.affine[slot], d, 0);
      }
    }
  }

  template <class Put>
  __device__ __forceinline__ void finish(const UnitSums<kTokens>& sums, int base, int unit, float* partial,
                                         Put&& put) {
    const int lane = static_cast<int>(threadIdx.x & 31);
    const int g = lane >> 2;
    if constexpr (kSplits == 1) {
#pragma unroll
      for (int n = 0; n < UnitSums<kTokens>::kColumns; ++n) {
        const int token = n * 4 + (lane & 3);
        if (token < kTokens && unit < units_) {
          put(unit, g, token, sums.low[n] * (1.0F / kSumScale));
          put(unit, g + 8, token, sums.high[n] * (1.0F / kSumScale));
        }
      }
    } else {
      const int warp = static_cast<int>(threadIdx.x >> 5);
#pragma unroll
      for (int n = 0; n < UnitSums<kTokens>::kColumns; ++n) {
        const int token = n * 4 + (lane & 3);
        if (token < kTokens) {
          float* p = partial + (warp * kTokens + token) * kUnitRows;
          p[g] = sums.low[n];
          p[g + 8] = sums.high[n];
        }
      }
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < kOutputs; i += kGemvThreads) {
        const auto [index, token, row] = output(i);
        if constexpr (kGated) {
          if (base + 2 * index < units_) {
            put(base + 2 * index, row, token, total(partial, 2 * index, token, row),
                total(partial, 2 * index + 1, token, row));
          }
        } else {
          if (base + index < units_) put(base + index, row, token, total(partial, index, token, row));
        }
      }
      if (base + stride_ < units_) __syncthreads();  // before `partial` is written again
    }
  }

  __device__ static float total(const float* partial, int unit, int token, int row) {
    float sum = 0;
#pragma unroll
    for (int split = 0; split < kSplits; ++split)
      sum += partial[((unit * kSplits + split) * kTokens + token) * kUnitRows + row];
    return sum * (1.0F / kSumScale);
  }

  const std::uint8_t* first_;
  std::int64_t tile_bytes_;
  int groups_;
  int units_;
  int stride_;
  int base_;
  int in_block_ = 0;
  int begin_ = 0;
  int end_ = 0;
  UnitLoads<kLoads> loads_;
};

/// Output channel of row `row` (0..15) of a unit; of a gated one, the column.
__device__ __forceinline__ int unit_channel(int unit, int row) {
  return (unit >> 1) * 32 + (row & 7) * 4 + (unit & 1) * 2 + (row >> 3);
}
__device__ __forceinline__ int unit_column(int unit, int row) {
  return (unit >> 1) * 16 + (row & 7) * 2 + (row >> 3);
}

}  // namespace lily::cuda
