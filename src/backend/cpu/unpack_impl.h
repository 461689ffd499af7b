// Codes of 2, 3, 5 and 6 bits to numbers. A row's codes are one stream of bits, lowest first, so they may
// straddle bytes and words; 8 codes always fill whole bytes.
#pragma once

#include "backend/cpu/kernels.h"
#include "backend/cpu/vector_impl.h"

namespace lily::cpu {
namespace {

typedef std::uint8_t CodeBytes __attribute__((vector_size(16)));
using LaneBytes = std::make_integer_sequence<int, 4 * kLanes>;

/// kLanes codes of a block from code kFirst on, from one load of 16 bytes that stays inside the block: it may
/// be the last of the file. (Put together from smaller loads, the register would wait for the store behind
/// them.)
template <int kBits, int kFirst>
struct CodeLanes {
  static constexpr int bit(int lane) { return (kFirst + lane) * kBits; }
  static constexpr int kBegin = bit(0) / 8 < 8 * kBits - 16 ? bit(0) / 8 : 8 * kBits - 16;
  /// The byte of the load that becomes byte `i` of the lanes: four from where a lane's code begins. Those it
  /// does not reach into may be any.
  static constexpr int byte(int i) {
    const int place = bit(i / 4) / 8 - kBegin + i % 4;
    return place < 16 ? place : 15;
  }

  template <int... I>
  LILY_INLINE static U32 gather(CodeBytes bytes, std::integer_sequence<int, I...>) {
    return reinterpret_cast<U32>(__builtin_shufflevector(bytes, bytes, byte(I)...));
  }
  template <int... I>
  LILY_INLINE static U32 shifts(std::integer_sequence<int, I...>) {
    return U32{static_cast<std::uint32_t>(bit(I) % 8)...};
  }
  LILY_INLINE static F32 read(const std::byte* block) {
    const U32 windows = gather(load<CodeBytes>(block + kBegin), LaneBytes{});
    return to_f32((windows >> shifts(Lanes{})) & ((1U << kBits) - 1U));
  }
};

template <int kBits, int... I>
LILY_INLINE void unpack_lanes(const std::byte* block, F32* out, std::integer_sequence<int, I...>) {
  ((out[I] = CodeLanes<kBits, I * kLanes>::read(block)), ...);
}

/// The 64 codes of a block, as numbers in their order.
template <int kBits>
LILY_INLINE void unpack_block(const std::byte* block, F32 (&out)[kGroup / kLanes]) {
  unpack_lanes<kBits>(block, out, std::make_integer_sequence<int, kGroup / kLanes>{});
}

}  // namespace
}  // namespace lily::cpu
