// Activations as integer products take them: two int8 digits, x = scale (d1 + d2 / 254).
//
// A scale covers a *part* of 16 inputs, within 1.6e-5 of whose largest element x then lies: nothing is lost
// beside bf16 weights' own rounding. A part is what a kernel computes together, so that it can quantise it
// for the next. Of 64 inputs part 2 h + b are those of half h with (input / 2) % 2 == b: a unit's 16 among
// the channels of its pair. Of experts' inputs it is each k16 step: a gated pair's 16 columns. A row is a
// record of kernels.h's digits_bytes():
//
//   words   [group][digit 2][c 4][k16 step 4]  inputs as in a packed word
//   affine  [group][part 4]                    what 254 d1 + d2 is multiplied by, the inputs' sum; see
//   kSumScale squares [group][part 4]                    sums that a later norm needs
#pragma once

#include "backend/cuda/kernels.h"
#include "backend/cuda/ptx.cuh"

namespace lily::cuda {

/// A row's digits, in shared or in device memory.
struct Digits {
  std::uint32_t* words;
  float2* affine;
  float* squares;

  __device__ Digits(std::uint8_t* record, int groups)
      : words(reinterpret_cast<std::uint32_t*>(record)),
        affine(reinterpret_cast<float2*>(record + groups * 128)),
        squares(reinterpret_cast<float*>(record + groups * 160)) {}
};
/// Records side by side.
struct DigitRows {
  std::uint8_t* memory;
  int groups;

  __device__ int stride() const { return static_cast<int>(digits_bytes(groups)); }
  __device__ Digits row(int i) const { return {memory + static_cast<std::int64_t>(i) * stride(), groups}; }
};

/// Inputs of a quad: 2c, 2c + 1, 2c + 8, 2c + 9 of k16 step kk, in groups of 16 quads, halves of 8.
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
/// Quad lane % 8 of 32 neighbouring inputs, of which a warp's lane lane_of(i) holds the i-th.
template <class LaneOf>
__device__ __forceinline__ float4 gather_quad(float x, LaneOf&& lane_of) {
  const int first = quad_input(static_cast<int>(threadIdx.x & 7));
  return make_float4(
      __shfl_sync(0xffffffffU, x, lane_of(first)), __shfl_sync(0xffffffffU, x, lane_of(first + 1)),
      __shfl_sync(0xffffffffU, x, lane_of(first + 8)), __shfl_sync(0xffffffffU, x, lane_of(first + 9)));
}

/// The fused operations are spelled out wherever the compiler could choose: two kernels must not round
/// differently.
__device__ __forceinline__ float sum_squares(float4 x) {
  return __fmaf_rn(x.w, x.w, __fmaf_rn(x.z, x.z, __fmaf_rn(x.y, x.y, __fmul_rn(x.x, x.x))));
}

/// Adding it rounds a float below 2^22 to an integer, whose low byte is then the sum's.
inline constexpr float kRounder = 0x1.8p23F;
/// What sums are kept times: an activation's scale times 2^-60, a weight's times 2^125.
inline constexpr float kSumScale = 0x1p65F;
inline constexpr float kDigitScale = kSumScale / kScaleLow;
static_assert(kDigitScale == 0x1p-60F);

__device__ __forceinline__ std::uint32_t low_bytes(const float (&x)[4]) {
  const std::uint32_t first = __byte_perm(__float_as_uint(x[0]), __float_as_uint(x[1]), 0x0040);
  const std::uint32_t second = __byte_perm(__float_as_uint(x[2]), __float_as_uint(x[3]), 0x0040);
  return __byte_perm(first, second, 0x5410);
}

enum class Parts { kUnits, kSteps, kWhole };

/// The sum (largest) of a part's quads: of every lane whose number differs in the part's bits alone.
template <Parts kParts, class Join>
__device__ __forceinline__ float part_join(float v, Join&& join) {
  constexpr int kBits = kParts == Parts::kUnits ? 6 : kParts == Parts::kSteps ? 3 : 15;
#pragma unroll
  for (int bit = 1; bit < 16; bit *= 2) {
    if ((kBits & bit) != 0) v = join(v, __shfl_xor_sync(0xffffffffU, v, bit));
  }
  return v;
}
/// Where a part's scale lies among a group's four, from its first quad; -1 from the others.
template <Parts kParts>
__device__ __forceinline__ int part_of(int quad) {
  if constexpr (kParts == Parts::kUnits) return (quad & 6) == 0 ? ((quad >> 3) & 1) * 2 + (quad & 1) : -1;
  if constexpr (kParts == Parts::kSteps) return (quad & 3) == 0 ? (quad >> 2) & 3 : -1;
  return (quad & 15) == 0 ? 0 : -1;
}

/// Quantises quad `quad`, whose lane is quad % 8 among eight (of whole groups quad % 16 among sixteen); all
/// lanes of a warp call it. `square`: of this quad, for a later norm.
template <Parts kParts>
__device__ __forceinline__ void put_quad(const Digits& d, int quad, float4 x, float square, bool valid) {
  const auto larger = [](float a, float b) { return fmaxf(a, b); };
  const auto add = [](float a, float b) { return a + b; };
  const float largest =
      part_join<kParts>(fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w))), larger);
  square = part_join<kParts>(square, add);
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
  const int quad_sum =
      254 * __dp4a(static_cast<int>(first), kOnes, 0) + __dp4a(static_cast<int>(second), kOnes, 0);
  const float sum = part_join<kParts>(static_cast<float>(quad_sum), add);  // exact: below 2^24
  if (!valid) return;
  const int group = quad >> 4;
  const int at = (group * 8 + (quad & 3)) * 4 + ((quad >> 2) & 3);
  d.words[at] = first;
  d.words[at + 16] = second;
  if (const int part = part_of<kParts>(quad); part >= 0) {
    const float scale = largest * (1.0F / (127.0F * 254.0F));
    d.affine[group * 4 + part] = make_float2(scale * kDigitScale, scale * sum * (kSumScale / kBiasFactor));
    d.squares[group * 4 + part] = square;
    if (kParts == Parts::kWhole) {
      for (int i = 1; i < 4; ++i) d.squares[group * 4 + i] = 0;
    }
  }
}
/// The residual's quad times the next norm's gain; the norm's RMS factor is left to the product.
template <Parts kParts = Parts::kUnits>
__device__ __forceinline__ void put_normed_quad(const Digits& d, int quad, float4 x, float4 gain,
                                                bool valid) {
  put_quad<kParts>(d, quad, make_float4(x.x * gain.x, x.y * gain.y, x.z * gain.z, x.w * gain.w),
                   sum_squares(x), valid);
}
/// `rows` <= kMost rows row(i) of the residual in f32 as digits, by all warps of a block; complete after the
/// next barrier.
template <int kMost, Parts kParts, class Row>
__device__ __forceinline__ void put_normed_rows(const DigitRows& d, int rows, Row&& row, const float* gain) {
  const float4 zero = make_float4(0, 0, 0, 0);
  const int quads = d.groups * 16;
  const int lane = static_cast<int>(threadIdx.x & 31);
  for (int base = static_cast<int>(threadIdx.x & ~31U); base < quads; base += static_cast<int>(blockDim.x)) {
    const int quad = base + lane;
    const bool valid = quad < quads;
    const float4 w = valid ? load_quad(gain, quad) : zero;
#pragma unroll 2
    for (int i = 0; i < kMost; ++i) {
      if (i < rows) put_normed_quad<kParts>(d.row(i), quad, valid ? load_quad(row(i), quad) : zero, w, valid);
    }
  }
}

/// Begins to bring rows [first, first + kTokens) of `rows`, as far as there are, to a block's shared memory.
template <int kTokens>
__device__ __forceinline__ void fetch_digits(BlockCopy& copy, const DigitRows& to, const std::uint8_t* from,
                                             int first, int rows) {
  const int bytes = (rows - first < kTokens ? rows - first : kTokens) * to.stride();
  copy.expect(bytes);
  copy.copy(to.memory, from + static_cast<std::int64_t>(first) * to.stride(), bytes);
}
/// The RMS factors, which products of normed rows are multiplied by, to `inverse_rms` [kTokens]: a warp each,
/// to be read after the next barrier.
template <int kTokens>
__device__ __forceinline__ void find_inverse_rms(const DigitRows& d, float eps, float* inverse_rms) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int token = static_cast<int>(threadIdx.x >> 5);
  if (token >= kTokens) return;
  const auto* squares = reinterpret_cast<const float4*>(d.row(token).squares);
  float sum = 0;
  for (int i = lane; i < d.groups; i += 32) {
    const float4 x = squares[i];
    sum += (x.x + x.y) + (x.z + x.w);
  }
  sum = warp_sum(sum);
  if (lane == 0) inverse_rms[token] = rsqrtf(sum / static_cast<float>(d.groups * kGroup) + eps);
}

}  // namespace lily::cuda
