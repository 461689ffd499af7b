// A kernel compiled for the executor, and what a dispatch gives it. Included by host code and by kernels, so
// it names no library type.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lily::metal::emu {

inline constexpr unsigned kBuffers = 31;
inline constexpr unsigned kThreadgroupArguments = 8;
inline constexpr unsigned kFunctionConstants = 64;
inline constexpr unsigned kLanes = 32;
inline constexpr std::size_t kThreadgroupBytes = 32768;  ///< as on every Apple GPU

struct Size3 {
  std::uint32_t x = 1;
  std::uint32_t y = 1;
  std::uint32_t z = 1;
  [[nodiscard]] std::uint64_t count() const { return std::uint64_t{x} * y * z; }
};

/// A place in a .metal file.
struct Place {
  const char* file = "";
  unsigned line = 0;
  unsigned column = 0;
};

struct Kernel {
  const char* name = nullptr;  ///< its host_name
  void (*run)() = nullptr;     ///< one thread of it; arguments are found through `self`
  unsigned max_threads = 0;
};

/// The kernels of one file; `msl run` defines it.
struct KernelTable {
  const Kernel* kernels = nullptr;
  unsigned count = 0;
};

struct Binding {
  std::byte* data = nullptr;
  std::size_t size = 0;
  bool read_only = false;
};

struct ConstantValue {
  bool set = false;
  std::uint32_t bits = 0;
};

struct Launch {
  const Kernel* kernel = nullptr;
  Binding buffers[kBuffers];
  std::size_t threadgroup_bytes[kThreadgroupArguments] = {};
  ConstantValue constants[kFunctionConstants];
  Size3 threadgroups;
  Size3 threads;  ///< of each threadgroup
};

}  // namespace lily::metal::emu
