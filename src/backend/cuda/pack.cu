// The checkpoint's rows into the packed layout: one thread for a pair of channels and one step of 64 inputs.
#include "backend/cuda/launch.cuh"
#include "backend/cuda/ptx.cuh"

namespace lily::cuda {
namespace {

// Four bits of code `k` (0..63) of a step: a row's codes are one stream of bits, lowest first.
__device__ std::uint32_t nibble(const std::uint8_t* codes, int bits, int shift, int k) {
  return (code_at(codes, bits, k) >> shift) & 15U;
}

// Times powers of two: exact. In this order, since 16 kScaleLow is no float.
__device__ std::uint32_t scaled(std::uint16_t bits, float first, float second) {
  const float v = bf16_low(bits) * first * second;
  return __float_as_uint(v) >> 16;
}

__global__ void pack_kernel(PackArgs a) {
  const int row_pairs = (a.rows_per_expert + 1) / 2;
  const int first_pair = a.first_row / 2;
  const int steps = a.groups * a.planes;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int step = static_cast<int>(index % steps);
  const int pair_index = static_cast<int>(index / steps);
  // Rows lie expert after expert; a pair does not cross experts.
  const int local = first_pair + pair_index;
  const int expert = local / row_pairs;
  const int row = (local % row_pairs) * 2;  // within the expert
  const std::int64_t source = static_cast<std::int64_t>(expert) * a.rows_per_expert + row - a.first_row;
  if (source >= a.rows) return;
  const bool second = row + 1 < a.rows_per_expert && source + 1 < a.rows;

  const int group = step % a.groups;
  const bool high_plane = a.planes == 2 && step < a.groups;
  const bool empty = high_plane && a.bits <= 4;
  const int shift = high_plane ? 4 : 0;
  const std::int64_t row_bytes = static_cast<std::int64_t>(a.groups) * kGroup * a.bits / 8;
  const std::uint8_t* low_row = a.codes + source * row_bytes + group * (kGroup * a.bits / 8);
  const std::uint8_t* high_row = low_row + row_bytes;

  const int channel = a.bank < 0 ? a.channel_offset + row : row;
  const int pair = a.bank < 0 ? channel / 32 : channel / 16;
  const int g = a.bank < 0 ? (channel % 32) / 4 : (channel % 16) / 2;
  const int bank = a.bank < 0 ? (channel >> 1) & 1 : a.bank;
  const int unit = 2 * pair + bank;
  std::uint8_t* block = a.out + (a.first_expert + expert) * a.expert_bytes +
                        (static_cast<std::int64_t>(pair / 8) * steps + step) * kBlockBytes;
  for (int c = 0; c < 4; ++c) {
    std::uint32_t words[4] = {};
    for (int kk = 0; kk < 4 && !empty; ++kk) {
      const int inputs[4] = {2 * c, 2 * c + 8, 2 * c + 1, 2 * c + 9};
      for (int byte = 0; byte < 4; ++byte) {
        const int k = kk * 16 + inputs[byte];
        words[kk] |= nibble(low_row, a.bits, shift, k) << (8 * byte);
        if (second) words[kk] |= nibble(high_row, a.bits, shift, k) << (8 * byte + 4);
      }
    }
    *reinterpret_cast<uint4*>(block + unit_offset(unit) + (g * 4 + c) * 16) =
        make_uint4(words[0], words[1], words[2], words[3]);
  }

  // More than 4 bits: (16 s) high + b, then s low. Others in two planes: nothing, then all of it.
  const float factor = a.bits > 4 && high_plane ? 16.0F : 1.0F;
  const bool biased = a.planes == 1 || (a.bits > 4) == high_plane;
  const int scales = a.groups * kGroup / a.group_size;  // of a row
  const std::int64_t at = source * scales + group * kGroup / a.group_size;
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  if (!empty) {
    low = scaled(a.scales[at], factor, kScaleLow);
    if (biased) low |= scaled(a.biases[at], 1.0F, kBiasFactor) << 16;
    if (second) {
      high = scaled(a.scales[at + scales], factor, kScaleHigh);
      if (biased) high |= scaled(a.biases[at + scales], 1.0F, kBiasFactor) << 16;
    }
    const float limit = kLargestScale / factor;
    const bool low_fits = fabsf(bf16_low(a.scales[at])) < limit;  // false for NaN too
    const bool high_fits = !second || fabsf(bf16_low(a.scales[at + scales])) < limit;
    if (!low_fits || !high_fits) *a.too_large = 1;
  }
  *reinterpret_cast<uint2*>(block + kBlockCodes + unit_offset(unit) / 8 + g * 8) = make_uint2(low, high);
}

}  // namespace

void pack(const Launch& where, const PackArgs& a) {
  const int experts = (a.first_row + a.rows + a.rows_per_expert - 1) / a.rows_per_expert;
  const int per_expert = (a.rows_per_expert + 1) / 2;
  const std::int64_t pairs =
      experts == 1 ? (a.rows + 1) / 2 : static_cast<std::int64_t>(experts) * per_expert;
  const std::int64_t threads = pairs * a.groups * a.planes;
  launch<pack_kernel>(where, false, dim3(static_cast<unsigned>((threads + 127) / 128)), 128, 0, a);
}

}  // namespace lily::cuda
