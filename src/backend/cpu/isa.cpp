#include "backend/cpu/isa.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>

#include "backend/cpu/isa_x86.h"
#include "backend/cpu/kernels.h"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace lily::cpu {
namespace {

// Of every build, so that a name is either unknown everywhere or missing here.
constexpr std::array<std::string_view, 6> kNames = {"generic", "avx2", "avx512", "avx512bf16", "amx", "neon"};

#if defined(__aarch64__)
bool has_arm_dot_products() {
#if defined(__linux__)
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
  return true;  // every Apple processor with this architecture and a Mac around it
#endif
}
#endif

}  // namespace

std::vector<const Kernels*> usable_kernels() {
  std::vector<const Kernels*> usable;
#if defined(__x86_64__)
  const X86Features features = find_x86_features(this_x86_machine());
  if (features.amx) usable.push_back(&amx_kernels());
  if (features.avx512bf16) usable.push_back(&avx512bf16_kernels());
  if (features.avx512) usable.push_back(&avx512_kernels());
  if (features.avx2) usable.push_back(&avx2_kernels());
#elif defined(__aarch64__)
  if (has_arm_dot_products()) usable.push_back(&neon_kernels());
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
  if (std::ranges::find(kNames, isa) != kNames.end()) {
    return fail(ErrorCode::kUnsupported, "isa '{}': this machine does not have it; usable here: auto{}", isa,
                names);
  }
  return fail(ErrorCode::kInvalidArgument, "isa '{}': expected one of auto, {}", isa,
              fmt::join(kNames, ", "));
}

}  // namespace lily::cpu
