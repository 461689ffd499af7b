// Codes of 2, 3, 5 and 6 bits to numbers. A row's codes are one stream of bits, lowest first, so they may
// straddle bytes and words; 8 codes always fill whole bytes.
#pragma once

#include "backend/cpu/kernels.h"
#include "backend/cpu/vector_impl.h"

namespace lily::cpu {
namespace {

typedef std::uint8_t CodeBytes __attribute__((vector_size(16)));
typedef std::uint8_t WindowBytes __attribute__((vector_size(32)));
typedef std::uint16_t Windows __attribute__((vector_size(32)));
using CodeIndices = std::make_integer_sequence<int, 16>;
using WindowIndices = std::make_integer_sequence<int, 32>;

/// Code i lies in the 16 bits that begin at byte kFirst + i kBits / 8, from bit i kBits % 8 on. Where it does
/// not reach into the second byte, that may be any: there is none behind the last.
template <int kBits, int kFirst, int... I>
LILY_INLINE Windows code_windows(CodeBytes bytes, std::integer_sequence<int, I...>) {
  return reinterpret_cast<Windows>(__builtin_shufflevector(
      bytes, bytes, (kFirst + I / 2 * kBits / 8 + I % 2 < 16 ? kFirst + I / 2 * kBits / 8 + I % 2 : 15)...));
}
/// A multiplication by these moves code i to bit 8; few machines shift 16-bit lanes by different amounts.
template <int kBits, int... I>
LILY_INLINE Windows to_bit_eight(std::integer_sequence<int, I...>) {
  return Windows{static_cast<std::uint16_t>(1 << (8 - I * kBits % 8))...};
}

/// Codes [16 kPart, 16 kPart + 16) of a block, from one load that stays inside the block: it may be the last
/// of the file. (Put together from smaller loads, the register would wait for the store behind them.)
template <int kBits, int kPart>
LILY_INLINE Windows unpack_16(const std::byte* block) {
  constexpr int kBegin = 2 * kBits * kPart;
  constexpr int kLast = 8 * kBits - 16;
  constexpr int kLoad = kBegin < kLast ? kBegin : kLast;
  const Windows windows =
      code_windows<kBits, kBegin - kLoad>(load<CodeBytes>(block + kLoad), WindowIndices{});
  const Windows moved = windows * to_bit_eight<kBits>(CodeIndices{});
  return (moved >> 8) & static_cast<std::uint16_t>((1 << kBits) - 1);
}

/// kLanes of 16 codes, from kFirst on, as numbers.
template <int kFirst, int... L>
LILY_INLINE F32 code_lanes(Windows codes, std::integer_sequence<int, L...>) {
  const U16 lanes = __builtin_shufflevector(codes, codes, (kFirst + L)...);
  return to_f32(__builtin_convertvector(lanes, U32));
}

template <int kBits, int kPart, int... I>
LILY_INLINE void unpack_part(const std::byte* block, F32* out, std::integer_sequence<int, I...>) {
  const Windows codes = unpack_16<kBits, kPart>(block);
  ((out[kPart * 16 / kLanes + I] = code_lanes<I * kLanes>(codes, Lanes{})), ...);
}

/// The 64 codes of a block, as numbers in their order.
template <int kBits>
LILY_INLINE void unpack_block(const std::byte* block, F32 (&out)[kGroup / kLanes]) {
  using Parts = std::make_integer_sequence<int, 16 / kLanes>;
  unpack_part<kBits, 0>(block, out, Parts{});
  unpack_part<kBits, 1>(block, out, Parts{});
  unpack_part<kBits, 2>(block, out, Parts{});
  unpack_part<kBits, 3>(block, out, Parts{});
}

}  // namespace
}  // namespace lily::cpu
