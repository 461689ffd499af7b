// Products of packed matrices with a few rows of activations: what decoding is made of.
//
// An f32 activation becomes two int8 digits, x = scale (d1 + d2 / 254), one scale for 64 inputs: within
// 1.6e-5 of the group's largest element, so nothing is lost beside bf16 weights' own rounding. The digits of
// a row are two columns of the integer tensor cores' B operand; four rows fill it, at no extra cost over one.
// Every sum has a fixed order that does not depend on how many rows are computed.
#pragma once

#include "backend/cuda/ptx.cuh"
#include "backend/cuda/kernels.h"

namespace lily::cuda {

inline constexpr int kGemvThreads = 512;
inline constexpr int kGemvWarps = 16;
inline constexpr int kUnitRows = 16;

/// Quantised activations of kTokens rows in shared memory.
struct Digits {
  std::uint32_t* words;  ///< [group][column = 2 token + digit][c 4][k16 step 4], inputs as in a packed word
  float* scale;          ///< [group][token]
  float* sum;            ///< [group][token]: sum of the quantised inputs
};
constexpr std::size_t digits_bytes(int groups, int tokens) {
  return static_cast<std::size_t>(groups) * static_cast<std::size_t>(tokens) * (2 * 64 + 8);
}
template <int kTokens>
__device__ Digits digits_at(std::uint8_t* memory, int groups) {
  Digits d;
  d.words = reinterpret_cast<std::uint32_t*>(memory);
  d.scale = reinterpret_cast<float*>(memory + groups * kTokens * 128);
  d.sum = d.scale + groups * kTokens;
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

/// The fused operations are spelled out wherever the compiler could choose: two kernels must not round
/// differently.
__device__ __forceinline__ float add_squares(float sum, float4 x) {
  return __fmaf_rn(x.w, x.w, __fmaf_rn(x.z, x.z, __fmaf_rn(x.y, x.y, __fmaf_rn(x.x, x.x, sum))));
}

/// Quantises quad `quad` of `token`; all lanes of a warp call it, half a warp a group.
template <int kTokens>
__device__ void put_digits(const Digits& d, int quad, int token, float4 x, bool valid, float factor = 1.0F) {
  float largest = fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w)));
  for (int step = 8; step > 0; step >>= 1)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, step));
  const float inverse = largest > 0 ? 127.0F / largest : 0.0F;
  const float values[4] = {x.x, x.z, x.y, x.w};  // byte order of a packed word
  std::uint32_t first = 0;
  std::uint32_t second = 0;
  int sum = 0;
  for (int i = 0; i < 4; ++i) {
    const float v = __fmul_rn(values[i], inverse);
    const float whole = rintf(v);
    const float rest = rintf(__fmul_rn(__fsub_rn(v, whole), 254.0F));
    const int d1 = static_cast<int>(whole);
    const int d2 = static_cast<int>(rest);
    first |= (static_cast<std::uint32_t>(d1) & 255U) << (8 * i);
    second |= (static_cast<std::uint32_t>(d2) & 255U) << (8 * i);
    sum += d1 * 254 + d2;
  }
  for (int step = 8; step > 0; step >>= 1) sum += __shfl_xor_sync(0xffffffffU, sum, step);
  if (!valid) return;
  const int group = quad >> 4;
  const int at = ((group * 2 * kTokens + 2 * token) * 4 + (quad & 3)) * 4 + ((quad >> 2) & 3);
  d.words[at] = first;
  d.words[at + 16] = second;
  if ((quad & 15) == 0) {
    const float scale = largest * (1.0F / 127.0F) * factor;
    d.scale[group * kTokens + token] = scale;
    d.sum[group * kTokens + token] = scale * (1.0F / 254.0F) * static_cast<float>(sum);
  }
}

/// gain * x of kTokens rows as digits; their RMS factors, which the products are to be multiplied by, in
/// `inverse_rms` [kTokens]. Ends with a barrier.
template <int kTokens>
__device__ void normed_digits(const Digits& d, const float* const (&rows)[kTokens], const float* gain, int hidden,
                              float eps, float* inverse_rms, float* scratch) {
  const int quads = hidden / 4;
  for (int token = 0; token < kTokens; ++token) {
    float square = 0;
    for (int base = static_cast<int>(threadIdx.x & ~31U); base < quads; base += kGemvThreads) {
      const int quad = base + static_cast<int>(threadIdx.x & 31);
      const bool valid = quad < quads;
      float4 x = make_float4(0, 0, 0, 0);
      if (valid && rows[token] != nullptr) {
        x = load_quad(rows[token], quad);
        square = add_squares(square, x);
        const float4 w = load_quad(gain, quad);
        x = make_float4(x.x * w.x, x.y * w.y, x.z * w.z, x.w * w.w);
      }
      put_digits<kTokens>(d, quad, token, x, valid);
    }
    const float total = block_sum(square, scratch);
    if (threadIdx.x == 0) inverse_rms[token] = rsqrtf(total / static_cast<float>(hidden) + eps);
  }
  __syncthreads();
}

/// Sums of a lane: rows g and g + 8 of a unit, token c (and 4 + c).
template <int kTokens>
struct UnitSums {
  static constexpr int kColumns = kTokens > 4 ? 2 : 1;
  float low[kColumns] = {};
  float high[kColumns] = {};
};

/// One step of 64 inputs of one unit.
template <int kTokens>
__device__ __forceinline__ void add_step(UnitSums<kTokens>& sums, uint4 codes, uint2 affine, const Digits& d,
                                         int group) {
  constexpr std::uint32_t kNibbles = 0x0f0f0f0fU;
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int g = lane >> 2;
  const int c = lane & 3;
  const std::uint32_t first[4] = {codes.x & kNibbles, (codes.x >> 4) & kNibbles, codes.y & kNibbles,
                                  (codes.y >> 4) & kNibbles};
  const std::uint32_t second[4] = {codes.z & kNibbles, (codes.z >> 4) & kNibbles, codes.w & kNibbles,
                                   (codes.w >> 4) & kNibbles};
  const float s_low = bf16_low(affine.x) * (1.0F / kScaleLow);
  const float b_low = bf16_high(affine.x) * (1.0F / kBiasFactor);
  const float s_high = bf16_low(affine.y) * (1.0F / kScaleHigh);
  const float b_high = bf16_high(affine.y) * (1.0F / kBiasFactor);
#pragma unroll
  for (int n = 0; n < UnitSums<kTokens>::kColumns; ++n) {
    uint4 b = make_uint4(0, 0, 0, 0);
    if (n * 8 + g < 2 * kTokens)
      b = *reinterpret_cast<const uint4*>(d.words + ((group * 2 * kTokens + n * 8 + g) * 4 + c) * 4);
    int product[4] = {0, 0, 0, 0};
    mma_u8s8(product, first, b.x, b.y);
    mma_u8s8(product, second, b.z, b.w);
    const int token = n * 4 + c;
    float scale = 0;
    float sum = 0;
    if (token < kTokens) {
      scale = d.scale[group * kTokens + token];
      sum = d.sum[group * kTokens + token];
    }
    const float low = __fmaf_rn(static_cast<float>(product[1]), 1.0F / 254.0F, static_cast<float>(product[0]));
    const float high = __fmaf_rn(static_cast<float>(product[3]), 1.0F / 254.0F, static_cast<float>(product[2]));
    sums.low[n] = __fmaf_rn(s_low, __fmul_rn(scale, low), __fmaf_rn(b_low, sum, sums.low[n]));
    sums.high[n] = __fmaf_rn(s_high, __fmul_rn(scale, high), __fmaf_rn(b_high, sum, sums.high[n]));
  }
}

/// The steps [begin, end) of a lane's share of one unit, four loads ahead.
struct UnitLoads {
  uint4 codes[4];
  uint2 affine[4];

  /// Loads step `step` of the unit whose block of step 0 is `tile`.
  __device__ __forceinline__ void load(int slot, const std::uint8_t* tile, int unit, int step) {
    const int lane = static_cast<int>(threadIdx.x & 31);
    const std::uint8_t* block = tile + static_cast<std::int64_t>(step) * kBlockBytes;
    codes[slot] = load_weights16(block + unit_offset(unit) + lane * 16);
    affine[slot] = load_weights8(block + kBlockCodes + unit_offset(unit) / 8 + (lane >> 2) * 8);
  }
};

/// Products of all units of `matrix` with `digits`, 16 / kSplits units a block at a time, a unit's inputs
/// split over kSplits warps. Begin with prefetch(), which reads weights only. `put(unit, row, token, value)`
/// gets each sum once; with kGated it is put(unit of the gate, row, token, gate, up).
template <int kTokens, int kSplits, bool kGated>
class Products {
 public:
  static constexpr int kUnits = kGemvWarps / kSplits;
  static constexpr int kPartialFloats = kSplits > 1 ? kGemvWarps * kTokens * kUnitRows : 1;

  __device__ Products(const Packed& matrix, int expert, int block, int blocks)
      : first_(matrix.tile(expert, 0)),
        tile_bytes_(static_cast<std::int64_t>(matrix.steps()) * kBlockBytes),
        groups_(matrix.groups),
        units_(matrix.pairs() * 2),
        stride_(blocks * kUnits),
        warp_(static_cast<int>(threadIdx.x >> 5)),
        base_(block * kUnits) {
    const int split = warp_ % kSplits;
    begin_ = matrix.steps() * split / kSplits;
    end_ = matrix.steps() * (split + 1) / kSplits;
  }

  __device__ __forceinline__ void prefetch() {
#pragma unroll
    for (int slot = 0; slot < 4; ++slot) load(slot, base_ + warp_ / kSplits, begin_ + slot);
  }

  template <class Put>
  __device__ __forceinline__ void run(const Digits& digits, float* partial, Put&& put) {
    for (int base = base_; base < units_; base += stride_) {
      const int unit = base + warp_ / kSplits;
      UnitSums<kTokens> sums;
      for (int step = begin_; step < end_; step += 4) {
        const bool last = step + 4 >= end_;
#pragma unroll
        for (int slot = 0; slot < 4; ++slot) {
          if (step + slot < end_) {
            const int here = step + slot;  // the second plane has the same inputs
            add_step<kTokens>(sums, loads_.codes[slot], loads_.affine[slot], digits,
                              here < groups_ ? here : here - groups_);
          }
          load(slot, last ? unit + stride_ : unit, (last ? begin_ : step + 4) + slot);
        }
      }
      finish(sums, base, unit, partial, put);
    }
  }

 private:
  __device__ __forceinline__ void load(int slot, int unit, int step) {
    if (unit < units_ && step < end_) {
      loads_.load(slot, first_ + (unit >> 4) * tile_bytes_, unit, step);
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
          put(unit, g, token, sums.low[n]);
          put(unit, g + 8, token, sums.high[n]);
        }
      }
    } else {
#pragma unroll
      for (int n = 0; n < UnitSums<kTokens>::kColumns; ++n) {
        const int token = n * 4 + (lane & 3);
        if (token < kTokens) {
          float* p = partial + (warp_ * kTokens + token) * kUnitRows;
          p[g] = sums.low[n];
          p[g + 8] = sums.high[n];
        }
      }
      __syncthreads();
      constexpr int kOutputs = (kGated ? kUnits / 2 : kUnits) * kTokens * kUnitRows;
      for (int i = static_cast<int>(threadIdx.x); i < kOutputs; i += kGemvThreads) {
        const int row = i % kUnitRows;
        const int token = i / kUnitRows % kTokens;
        const int index = i / (kUnitRows * kTokens);
        if constexpr (kGated) {
          if (base + 2 * index < units_) {
            put(base + 2 * index, row, token, total(partial, 2 * index, token, row),
                total(partial, 2 * index + 1, token, row));
          }
        } else {
          if (base + index < units_) put(base + index, row, token, total(partial, index, token, row));
        }
      }
      __syncthreads();
    }
  }

  __device__ static float total(const float* partial, int unit, int token, int row) {
    float sum = 0;
#pragma unroll
    for (int split = 0; split < kSplits; ++split)
      sum += partial[((unit * kSplits + split) * kTokens + token) * kUnitRows + row];
    return sum;
  }

  const std::uint8_t* first_;
  std::int64_t tile_bytes_;
  int groups_;
  int units_;
  int stride_;
  int warp_;
  int base_;
  int begin_ = 0;
  int end_ = 0;
  UnitLoads loads_;
};

/// Output channel of row `row` (0..15) of a unit; of a gated one, the column.
__device__ __forceinline__ int unit_channel(int unit, int row) {
  return (unit >> 1) * 32 + (row & 7) * 4 + (unit & 1) * 2 + (row >> 3);
}
__device__ __forceinline__ int unit_column(int unit, int row) {
  return (unit >> 1) * 16 + (row & 7) * 2 + (row >> 3);
}

}  // namespace lily::cuda
