// Finds races, accesses outside of what is bound, uninitialised threadgroup memory and misaligned accesses,
// exactly: by looking at every access, whatever its outcome. Kernels are compiled with clang's
// -fsanitize=thread, which puts a call before each of them; this file's library answers the calls in place of
// the sanitizer's.
//
// Two accesses of a byte by different threads, one of them a plain write, conflict unless a barrier lies
// between them whose mem_flags name that memory: a threadgroup_barrier for threads of a group, a
// simdgroup_barrier for those of a SIMD-group, a barrier of the command list for any.
#pragma once

#include "backend/metal/emulator/executor.h"

namespace lily::testing {

/// The program's only one: there is one set of hooks.
[[nodiscard]] metal::emu::AccessObserver& race_checker();

}  // namespace lily::testing
