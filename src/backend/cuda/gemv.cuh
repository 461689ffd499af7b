// Products of packed matrices with a few rows of activations in digits: what decoding is made of.
//
// A row's two digits are two columns of the integer tensor cores' B operand, and each part of 16 inputs needs
// a column pair of its own, where the others' inputs are zero. So one row fills the eight columns, and the
// four lanes of a row of A sum its parts; of four or eight rows each lane sums all parts of its own. Every
// sum has a fixed order that does not depend on how many rows are computed.
#pragma once

#include "backend/cuda/digits.cuh"

namespace lily::cuda {

inline constexpr int kGemvThreads = 512;
inline constexpr int kGemvWarps = 16;
inline constexpr int kUnitRows = 16;

/// Sums of a lane: rows g and g + 8 of a unit. One row: of part c. More: [part] of row c, then of row 4 + c.
template <int kTokens, Parts kParts = Parts::kUnits>
struct UnitSums {
  static constexpr int kSets = kTokens > 4 ? 2 : 1;
  static constexpr int kPartSums = kTokens == 1 || kParts == Parts::kWhole ? 1 : 4;
  static constexpr int kCount = kSets * kPartSums;
  float low[kCount] = {};
  float high[kCount] = {};

  /// All parts of token 4 set + c; all lanes of a warp call it.
  __device__ __forceinline__ float2 total(int set) const {
    return make_float2(total(low, set), total(high, set));
  }

 private:
  __device__ static __forceinline__ float total(const float (&sums)[kCount], int set) {
    if constexpr (kTokens == 1) {
      const float pair = sums[0] + __shfl_xor_sync(0xffffffffU, sums[0], 1);
      return pair + __shfl_xor_sync(0xffffffffU, pair, 2);
    } else if constexpr (kPartSums == 1) {
      return sums[set];
    } else {
      return (sums[4 * set] + sums[4 * set + 1]) + (sums[4 * set + 2] + sums[4 * set + 3]);
    }
  }
};

/// A lane's view of the digits of one group; the next group's are 32 words and four floats2 on. operand() is
/// what sum i of UnitSums multiplies: column n = lane / 4 is a digit of row n / 2 of set i / kPartSums.
template <int kTokens, Parts kParts>
struct LaneDigits {
  static constexpr int kPartSums = UnitSums<kTokens, kParts>::kPartSums;
  const std::uint32_t* words;
  const float2* affine;
  int stride;  ///< in bytes, of four rows
  bool even;   ///< whether this lane's inputs are of parts with b = 0

  __device__ __forceinline__ LaneDigits(const DigitRows& d, int group) {
    const int lane = static_cast<int>(threadIdx.x & 31);
    const int c = lane & 3;
    words = d.row(lane >> 3).words + group * 32 + ((lane >> 2) & 1) * 16 + c * 4;
    affine = d.row(c).affine + group * 4;
    stride = 4 * d.stride();
    even = (c & 1) == 0;
  }
  __device__ __forceinline__ uint4 operand(int i, int ahead) const {
    const auto* at = reinterpret_cast<const std::uint8_t*>(words + ahead * 32) + i / kPartSums * stride;
    const uint4 w = *reinterpret_cast<const uint4*>(at);
    if constexpr (kParts == Parts::kWhole) return w;
    if constexpr (kParts == Parts::kSteps) {
      const int part = i % kPartSums;
      return make_uint4(part == 0 ? w.x : 0, part == 1 ? w.y : 0, part == 2 ? w.z : 0, part == 3 ? w.w : 0);
    }
    const bool mine = even == ((i & 1) == 0);
    const bool first = mine && (i & 2) == 0;
    const bool second = mine && (i & 2) != 0;
    return make_uint4(first ? w.x : 0, first ? w.y : 0, second ? w.z : 0, second ? w.w : 0);
  }
  __device__ __forceinline__ float2 scale(int i, int ahead) const {
    const auto* at =
        reinterpret_cast<const std::uint8_t*>(affine + ahead * 4 + i % kPartSums) + i / kPartSums * stride;
    return *reinterpret_cast<const float2*>(at);
  }
};
/// Of the only row: each pair of columns has the inputs of one part.
template <Parts kParts>
struct LaneDigits<1, kParts> {
  static_assert(kParts != Parts::kWhole);
  const std::uint32_t* words;
  const float2* affine;

  __device__ __forceinline__ LaneDigits(const DigitRows& d, int group) {
    const int lane = static_cast<int>(threadIdx.x & 31);
    const int part = lane >> 3;
    const Digits row = d.row(0);
    words = row.words + group * 32 + ((lane >> 2) & 1) * 16 + (lane & 3) * 4 +
            (kParts == Parts::kUnits ? part & 2 : part);
    affine = row.affine + group * 4 + (lane & 3);
  }
  __device__ __forceinline__ uint4 operand(int /*i*/, int ahead) const {
    const int lane = static_cast<int>(threadIdx.x & 31);
    const int part = lane >> 3;
    if constexpr (kParts == Parts::kUnits) {
      const uint2 w = *reinterpret_cast<const uint2*>(words + ahead * 32);
      const bool mine = ((lane ^ part) & 1) == 0;
      const bool first = mine && part < 2;
      const bool second = mine && part >= 2;
      return make_uint4(first ? w.x : 0, first ? w.y : 0, second ? w.x : 0, second ? w.y : 0);
    } else {
      const std::uint32_t w = words[ahead * 32];
      return make_uint4(part == 0 ? w : 0, part == 1 ? w : 0, part == 2 ? w : 0, part == 3 ? w : 0);
    }
  }
  __device__ __forceinline__ float2 scale(int /*i*/, int ahead) const { return affine[ahead * 4]; }
};

/// One step of 64 inputs of one unit; its digits are `ahead` groups behind `d`. `factor`: of these inputs.
template <int kTokens, Parts kParts>
__device__ __forceinline__ void add_step(UnitSums<kTokens, kParts>& sums, uint4 codes, uint2 affine,
                                         const LaneDigits<kTokens, kParts>& d, int ahead,
                                         float factor = 1.0F) {
  // Row g + 8's codes stay in the high nibbles, sixteen times too large: their scale is stored for that.
  constexpr std::uint32_t kLow = 0x0f0f0f0fU;
  constexpr std::uint32_t kHigh = 0xf0f0f0f0U;
  static_assert(kScaleLow == 16.0F * kScaleHigh);
  const std::uint32_t halves[2][4] = {{codes.x & kLow, codes.x & kHigh, codes.y & kLow, codes.y & kHigh},
                                      {codes.z & kLow, codes.z & kHigh, codes.w & kLow, codes.w & kHigh}};
#pragma unroll
  for (int i = 0; i < UnitSums<kTokens, kParts>::kCount; ++i) {
    const float2 scale = d.scale(i, ahead);
    int product[4] = {0, 0, 0, 0};  // row g: both digits of a part; row g + 8 the same
    const uint4 b = d.operand(i, ahead);
    constexpr bool kBoth = UnitSums<kTokens, kParts>::kPartSums == 1;  // else half of b is zero
    if (kBoth || (i & 2) == 0) mma_u8s8(product, halves[0], b.x, b.y);
    if (kBoth || (i & 2) != 0) mma_u8s8(product, halves[1], b.z, b.w);
    const float low = static_cast<float>(product[0] * 254 + product[1]);
    const float high = static_cast<float>(product[2] * 254 + product[3]);
    const float x = __fmul_rn(scale.x, factor);
    const float sum = __fmul_rn(scale.y, factor);
    sums.low[i] =
        __fmaf_rn(bf16_low(affine.x), __fmul_rn(x, low), __fmaf_rn(bf16_high(affine.x), sum, sums.low[i]));
    sums.high[i] =
        __fmaf_rn(bf16_low(affine.y), __fmul_rn(x, high), __fmaf_rn(bf16_high(affine.y), sum, sums.high[i]));
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

/// Products of all units of `matrix` with rows of digits, a unit's inputs split over kSplits warps, 16 /
/// kSplits units at a time and kRounds times that many between barriers, kLoads steps under way. Begin with
/// prefetch(), which reads weights only. put(unit, row, token, value) gets each sum, by whole warps; with
/// kGated it is put(unit of the gate, row, token, gate, up).
template <int kTokens, int kSplits, bool kGated, int kLoads = 4, int kRounds = 1,
          Parts kParts = Parts::kUnits>
class Products {
  using Sums = UnitSums<kTokens, kParts>;
  using Lane = LaneDigits<kTokens, kParts>;

 public:
  static_assert(kSplits > 1);
  static constexpr int kUnits = kGemvWarps / kSplits;
  static constexpr int kBlockUnits = kUnits * kRounds;
  static constexpr int kPartialFloats = kRounds * kGemvWarps * kTokens * kUnitRows;
  /// Sums that put() gets between barriers, the i-th from thread i.
  static constexpr int kIndices = kGated ? kBlockUnits / 2 : kBlockUnits;
  static constexpr int kOutputs = kIndices * kTokens * kUnitRows;
  struct Output {
    int index;  ///< unit (gated: pair of units) of those between two barriers
    int token;
    int row;
  };
  /// Past the last one a warp repeats sums of the last token.
  __device__ static Output output(int i) {
    const int token = i / (kUnitRows * kIndices);
    return {i / kUnitRows % kIndices, token < kTokens ? token : kTokens - 1, i % kUnitRows};
  }

  __device__ Products(const Packed& matrix, int expert, int block, int blocks)
      : first_(matrix.tile(expert, 0)),
        tile_bytes_(static_cast<std::int64_t>(matrix.steps()) * kBlockBytes),
        groups_(matrix.groups),
        units_(matrix.pairs() * 2),
        stride_(blocks * kBlockUnits),
        base_(block * kBlockUnits) {
    const int warp = static_cast<int>(threadIdx.x >> 5);
    const int split = warp % kSplits;
    begin_ = matrix.steps() * split / kSplits;
    end_ = matrix.steps() * (split + 1) / kSplits;
    in_block_ = warp / kSplits;
  }

  __device__ __forceinline__ void prefetch() { load_batch(base_ + in_block_, begin_); }
  /// And the steps after those, up to the next barrier, as far as the L2: where there is time until the
  /// inputs come.
  __device__ __forceinline__ void prefetch_more() {
    const int steps = end_ - begin_;
    const int lane = static_cast<int>(threadIdx.x & 31);
    for (int i = lane; i < (kRounds * steps - kLoads) * kUnitLines; i += 32) {
      const int at = kLoads + i / kUnitLines;
      const int unit = base_ + in_block_ + (kRounds > 1 ? at / steps * kUnits : 0);
      const int step = begin_ + (kRounds > 1 ? at % steps : at);
      if (unit < units_)
        prefetch_unit_line(first_ + (unit >> 4) * tile_bytes_ + step * kBlockBytes, unit, i % kUnitLines);
    }
  }

  template <class Put>
  __device__ __forceinline__ void run(const DigitRows& digits, float* partial, Put&& put) {
    for (int base = base_; base < units_; base += stride_) {
#pragma unroll 1
      for (int round = 0; round < kRounds; ++round) {
        const int unit = base + round * kUnits + in_block_;
        const int next = round + 1 < kRounds ? unit + kUnits : base + stride_ + in_block_;
        Sums sums;
        for (int step = begin_; step < end_; step += kLoads) {
          const bool last = step + kLoads >= end_;
          // A batch lies in one plane or is taken step by step: planes are as long as batches are, or
          // shorter.
          const int group = step < groups_ ? step : step - groups_;
          if (step + kLoads <= end_ && group + kLoads <= groups_) {
            add_batch(sums, Lane(digits, group), last ? next : unit, last ? begin_ : step + kLoads);
          } else {
            add_tail(sums, digits, step);
            load_batch(last ? next : unit, last ? begin_ : step + kLoads);
          }
        }
        keep(sums, partial + round * kGemvWarps * kTokens * kUnitRows);
      }
      finish(base, partial, put);
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
  __device__ __forceinline__ void add_batch(Sums& sums, const Lane& digits, int next_unit, int next_step) {
    if (next_unit < units_ && next_step + kLoads <= end_) {
      const UnitPointers next = pointers(next_unit, next_step);
#pragma unroll
      for (int slot = 0; slot < kLoads; ++slot) {
        add_step(sums, loads_.codes[slot], loads_.affine[slot], digits, slot);
        loads_.load(slot, next, slot);
      }
    } else {
#pragma unroll
      for (int slot = 0; slot < kLoads; ++slot)
        add_step(sums, loads_.codes[slot], loads_.affine[slot], digits, slot);
      load_batch(next_unit, next_step);
    }
  }
  __device__ __forceinline__ void add_tail(Sums& sums, const DigitRows& digits, int step) {
#pragma unroll
    for (int slot = 0; slot < kLoads; ++slot) {
      const int here = step + slot;
      if (here < end_) {
        const Lane d(digits, here < groups_ ? here : here - groups_);
        add_step(sums, loads_.codes[slot], loads_.affine[slot], d, 0);
      }
    }
  }

  __device__ __forceinline__ void keep(const Sums& sums, float* partial) {
    const int lane = static_cast<int>(threadIdx.x & 31);
    const int warp = static_cast<int>(threadIdx.x >> 5);
#pragma unroll
    for (int set = 0; set < Sums::kSets; ++set) {
      const float2 total = sums.total(set);
      const int token = set * 4 + (lane & 3);
      if (token < kTokens) {
        float* p = partial + (warp * kTokens + token) * kUnitRows + (lane >> 2);
        p[0] = total.x;
        p[8] = total.y;
      }
    }
  }

  template <class Put>
  __device__ __forceinline__ void finish(int base, float* partial, Put&& put) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < (kOutputs + 31) / 32 * 32; i += kGemvThreads) {
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

/// The 16 columns from `column` on of a gated pair, of a row in each half warp, to a row of digits in parts
/// by steps. Whole warps call it.
__device__ __forceinline__ void put_columns(float value, std::uint8_t* digits, int groups, int column,
                                            bool valid) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const float4 quad =
      gather_quad(value, [lane](int i) { return (lane & kUnitRows) + (i & 1) * 8 + (i % kUnitRows >> 1); });
  put_quad<Parts::kSteps>(Digits(digits, groups), column / 4 + (lane & 3), quad, 0,
                          valid && (lane & 12) == 0);
}

/// The quad of a thread that put_unit() is called with.
__device__ __forceinline__ int unit_quad(int unit) {
  return (unit >> 1) * 8 + static_cast<int>(threadIdx.x & 7);
}
/// The residual's channels of unit `unit`, a row in each half warp: to x and, times the next norm's gain (of
/// unit_quad()), to the digits of rows of `groups`. Whole warps call it.
__device__ __forceinline__ void put_unit(float* x, float value, std::uint8_t* digits, int groups, int unit,
                                         float4 gain, bool valid) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  if (valid) *x = value;
  // Channel i of the pair's 32, where it is this unit's.
  const float4 quad =
      gather_quad(value, [lane](int i) { return (lane & kUnitRows) + (i & 1) * 8 + (i >> 2); });
  put_normed_quad(Digits(digits, groups), unit_quad(unit), quad, gain,
                  valid && (lane & 8) == 0 && (lane & 1) == (unit & 1));
}

}  // namespace lily::cuda
