#include "backend/cpu/isa_x86.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace lily::cpu {
namespace {

constexpr bool has_bits(std::uint64_t word, std::uint64_t bits) {
  return (word & bits) == bits;
}
constexpr std::uint32_t bit(int index) {
  return std::uint32_t{1} << index;
}

// Leaf 1, ecx.
constexpr std::uint32_t kFma = bit(12);
constexpr std::uint32_t kOsxsave = bit(27);
constexpr std::uint32_t kAvx = bit(28);
// Leaf 7, ebx.
constexpr std::uint32_t kAvx2 = bit(5);
constexpr std::uint32_t kAvx512 = bit(16) | bit(17) | bit(30) | bit(31);  // F, DQ, BW, VL
// Leaf 7, ecx.
constexpr std::uint32_t kVnni = bit(11);
// Leaf 7, subleaf 1, eax.
constexpr std::uint32_t kBf16 = bit(5);
// Leaf 7, edx.
constexpr std::uint32_t kAmx = bit(22) | bit(24);  // BF16, tiles
// XCR0: what the system saves when it switches tasks.
constexpr std::uint64_t kSavesYmm = 0x06;  // SSE, AVX
constexpr std::uint64_t kSavesZmm = 0xe6;  // and mask registers, upper halves, registers 16 to 31
constexpr std::uint64_t kSavesTiles = 0x60000;

}  // namespace

X86Features find_x86_features(const X86Machine& machine) {
  X86Features features;
  if (machine.cpuid(0, 0).eax < 7) return features;
  const CpuidWords basic = machine.cpuid(1, 0);
  if (!has_bits(basic.ecx, kOsxsave | kAvx | kFma)) return features;
  const std::uint64_t saved = machine.xcr0();
  if (!has_bits(saved, kSavesYmm)) return features;
  const CpuidWords extended = machine.cpuid(7, 0);
  features.avx2 = has_bits(extended.ebx, kAvx2);
  features.avx512 = features.avx2 && has_bits(saved, kSavesZmm) && has_bits(extended.ebx, kAvx512) &&
                    has_bits(extended.ecx, kVnni);
  features.avx512bf16 = features.avx512 && extended.eax >= 1 && has_bits(machine.cpuid(7, 1).eax, kBf16);
  features.amx = features.avx512bf16 && has_bits(extended.edx, kAmx) && has_bits(saved, kSavesTiles) &&
                 machine.grants_tiles();
  return features;
}

#if defined(__x86_64__)
namespace {

// Linux saves the 8 KiB of tiles only for processes that asked for it; threads inherit the grant.
bool ask_for_tiles() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace

X86Machine this_x86_machine() {
  return {.cpuid =
              [](std::uint32_t leaf, std::uint32_t subleaf) {
                CpuidWords words;
                __cpuid_count(leaf, subleaf, words.eax, words.ebx, words.ecx, words.edx);
                return words;
              },
          .xcr0 =
              [] {
                std::uint32_t low = 0;
                std::uint32_t high = 0;
                asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
                return std::uint64_t{high} << 32 | low;
              },
          .grants_tiles = ask_for_tiles};
}
#endif

}  // namespace lily::cpu
