// Which x86 instruction sets may be used: the processor has them, and the operating system keeps their
// registers.
#pragma once

#include <cstdint>
#include <functional>

namespace lily::cpu {

struct CpuidWords {
  std::uint32_t eax = 0;
  std::uint32_t ebx = 0;
  std::uint32_t ecx = 0;
  std::uint32_t edx = 0;
};

/// What is asked of a processor; a test may make one up.
struct X86Machine {
  std::function<CpuidWords(std::uint32_t leaf, std::uint32_t subleaf)> cpuid;
  std::function<std::uint64_t()> xcr0;  ///< asked only if CPUID says that the system has set it
  std::function<bool()>
      grants_tiles;  ///< whether the system lets this process use AMX, which it may be asked for
};

/// What the kernels are compiled for (backend/CMakeLists.txt).
struct X86Features {
  bool avx2 = false;        ///< AVX2, FMA
  bool avx512 = false;      ///< and AVX-512 F, BW, VL, DQ, VNNI
  bool avx512bf16 = false;  ///< and AVX-512 BF16
  bool amx = false;         ///< and AMX with bf16
};

[[nodiscard]] X86Features find_x86_features(const X86Machine& machine);

#if defined(__x86_64__)
[[nodiscard]] X86Machine this_x86_machine();
#endif

}  // namespace lily::cpu
