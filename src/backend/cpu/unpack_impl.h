// Codes of any width to bytes. A row's codes are one stream of bits, lowest first, so those of 2, 3, 5 and 6
// bits may straddle bytes and words; 8 codes always fill whole bytes.
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

/// Code i lies in the 16 bits that begin at byte i kBits / 8, from bit i kBits % 8 on.
template <int kBits, int... I>
LILY_INLINE Windows code_windows(CodeBytes bytes, std::integer_sequence<int, I...>) {
  return reinterpret_cast<Windows>(__builtin_shufflevector(bytes, bytes, (I / 2 * kBits / 8 + I % 2)...));
}
/// A multiplication by these moves code i to bit 8; few machines shift 16-bit lanes by different amounts.
template <int kBits, int... I>
LILY_INLINE Windows to_bit_eight(std::integer_sequence<int, I...>) {
  return Windows{static_cast<std::uint16_t>(1 << (8 - I * kBits % 8))...};
}

/// 16 codes, from 2 kBits bytes. Nothing behind them is read: they may be the last of the file.
template <int kBits>
LILY_INLINE CodeBytes unpack_16(const std::byte* p) {
  CodeBytes bytes = {};
  __builtin_memcpy(&bytes, p, 2 * kBits);
  const Windows moved = code_windows<kBits>(bytes, WindowIndices{}) * to_bit_eight<kBits>(CodeIndices{});
  return __builtin_convertvector((moved >> 8) & static_cast<std::uint16_t>((1 << kBits) - 1), CodeBytes);
}

/// The 64 codes of a block.
template <int kBits>
LILY_INLINE void unpack_block(const std::byte* p, std::byte (&out)[kGroup]) {
  for (int i = 0; i < kGroup; i += 16) store(out + i, unpack_16<kBits>(p + i * kBits / 8));
}

}  // namespace
}  // namespace lily::cpu
