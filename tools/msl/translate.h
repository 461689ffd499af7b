// The lexical pass: preprocessed Metal source to C++ that clang compiles with the executor's headers
// (src/backend/metal/emulator/include). It needs no knowledge of types; four things are rewritten and the
// rest stays byte for byte, with the preprocessor's line markers, so that every diagnostic names the .metal
// file.
//
//   x [[buffer(0)]]                     a default argument:  x = ::emu::buffer<0>()
//   threadgroup float t[64];            a reference to memory that the threads of a group share
//   constant bool n [[function_constant(1)]];   a macro that reads the pipeline's value
//   kernel, [[host_name("x")]]          an entry of the table of kernels at the end
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lily::msl {

enum class Target {
  kRun,    ///< C++ for the executor, address spaces erased
  kCheck,  ///< C++ for OpenCL, which has Metal's address spaces: compiled for its errors alone
};

struct Translation {
  std::string text;
  std::vector<std::string> kernels;   ///< host names
  std::vector<std::string> problems;  ///< what Metal, or this pass, does not take: "file:line: error: ..."
};

/// `table` is the name of the table of kernels, a C identifier.
[[nodiscard]] Translation translate(std::string_view preprocessed, Target target, std::string_view table);

}  // namespace lily::msl
