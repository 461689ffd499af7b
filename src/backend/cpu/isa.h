// Which instruction set the kernels use: found at run time, or forced by an option.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"

namespace lily::cpu {

struct Kernels;

/// The kernel sets this build holds and this machine can run, best first; "generic" is always the last.
[[nodiscard]] std::vector<const Kernels*> usable_kernels();

/// The kernels for `isa`: auto, generic, avx2, avx512, avx512bf16, amx or neon. kUnsupported when the machine
/// (or the build) lacks them.
Result<const Kernels*> select_kernels(std::string_view isa);

}  // namespace lily::cpu
