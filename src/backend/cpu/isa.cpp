#include "backend/cpu/isa.h"

#include <fmt/format.h>

#include <string>

#include "backend/cpu/kernels.h"

namespace lily::cpu {

std::vector<const Kernels*> usable_kernels() {
  std::vector<const Kernels*> usable;
#if defined(__x86_64__)
  // These look at CPUID and at what the operating system saves on a context switch (XCR0).
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("fma")) {
    usable.push_back(&avx512_kernels());
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) usable.push_back(&avx2_kernels());
#endif
  usable.push_back(&generic_kernels());
  return usable;
}

Result<const Kernels*> select_kernels(std::string_view isa) {
  const std::vector<const Kernels*> usable = usable_kernels();
  if (isa == "auto") return usable.front();
  std::string names;
  for (const Kernels* kernels : usable) {
    if (isa == kernels->isa) return kernels;
    names += fmt::format(", {}", kernels->isa);
  }
  if (isa == "avx2" || isa == "avx512") {
    return fail(ErrorCode::kUnsupported, "isa '{}': this machine does not have it; usable here: auto{}", isa,
                names);
  }
  return fail(ErrorCode::kInvalidArgument, "isa '{}': expected one of auto, generic, avx2, avx512", isa);
}

}  // namespace lily::cpu
