// What the Metal backend asks of a GPU: memory, pipelines, command lists. MetalDevice speaks to Apple's API,
// EmulatedDevice runs the same kernels on the CPU; nothing else in the backend knows which of them it has.
//
// One thread uses a device. Bytes that a submitted list reads or writes belong to the device until wait()
// returns; the host touches them before submit() or after wait(), never in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"

namespace lily::metal {

inline constexpr unsigned kMaxBuffers = 31;           ///< buffer(0) to buffer(30)
inline constexpr unsigned kMaxThreadgroupSlots = 8;   ///< threadgroup(0) to threadgroup(7)
inline constexpr std::size_t kMaxInlineBytes = 4096;  ///< of set_bytes
inline constexpr std::uint32_t kMaxThreads = 1024;    ///< of a threadgroup
inline constexpr std::uint32_t kSimdWidth = 32;
inline constexpr std::size_t kBufferAlignment = 256;  ///< of GpuBuffer::contents()
inline constexpr std::size_t kToTheEnd = ~std::size_t{0};

struct DeviceFacts {
  std::string name;
  std::int64_t working_set_bytes = 0;  ///< what the system recommends to use at most
  std::int64_t max_buffer_bytes = 0;   ///< of one allocation
};

/// Three extents, as Metal's own (MTLSize).
struct Extents {
  std::uint32_t x = 1;
  std::uint32_t y = 1;
  std::uint32_t z = 1;
};

/// Memory that host and device share. Freed with the last owner, which must outlive the lists that use it.
class GpuBuffer {
 public:
  virtual ~GpuBuffer() = default;
  [[nodiscard]] virtual std::byte* contents() const = 0;
  [[nodiscard]] virtual std::size_t size() const = 0;
};

/// A compiled kernel with its function constants filled in.
class GpuPipeline {
 public:
  virtual ~GpuPipeline() = default;
  /// Of a threadgroup: what registers and [[max_total_threads_per_threadgroup]] leave.
  [[nodiscard]] virtual std::uint32_t max_threads() const = 0;
};

struct FunctionConstant {
  unsigned index = 0;
  std::variant<bool, std::uint32_t, float> value;
};

/// Dispatches in the order of encoding, then one submit(), then one wait(). What was set stays set for the
/// next dispatch. Dispatches may overlap on the device unless a barrier() lies between them.
class CommandList {
 public:
  virtual ~CommandList() = default;

  virtual void set_pipeline(const GpuPipeline& pipeline) = 0;
  /// `size`: what the kernel may touch from `offset` on; the emulated device holds it to that.
  virtual void set_buffer(unsigned index, const GpuBuffer& buffer, std::size_t offset = 0,
                          std::size_t size = kToTheEnd) = 0;
  /// Copies at most kMaxInlineBytes, for parameters.
  virtual void set_bytes(unsigned index, const void* bytes, std::size_t size) = 0;
  /// A [[threadgroup(index)]] argument of so many bytes; rounded up to 16.
  virtual void set_threadgroup_memory(unsigned index, std::size_t bytes) = 0;
  virtual void dispatch(Extents threadgroups, Extents threads_per_threadgroup) = 0;
  /// Later dispatches see what earlier ones wrote.
  virtual void barrier() = 0;

  /// Hands the list to the device; lists run in the order of their submission, the later after the earlier.
  virtual void submit() = 0;
  /// Returns once the device is done, with the error it reports: a fault, a timeout, memory that ran out.
  virtual Result<void> wait() = 0;

  template <class T>
  void set_value(unsigned index, const T& value) {
    set_bytes(index, &value, sizeof value);
  }
};

class GpuDevice {
 public:
  virtual ~GpuDevice() = default;
  [[nodiscard]] virtual const DeviceFacts& facts() const = 0;

  /// `size` bytes aligned to kBufferAlignment, kept resident. kExhausted where they, with what is allocated
  /// already, exceed the recommended working set; `what` names them in that message.
  [[nodiscard]] virtual Result<std::unique_ptr<GpuBuffer>> allocate(std::size_t size,
                                                                    std::string_view what) = 0;
  /// The kernel of that host_name. kUnsupported, with the compiler's message, where this device cannot run
  /// it.
  [[nodiscard]] virtual Result<std::unique_ptr<GpuPipeline>> pipeline(
      std::string_view kernel, std::span<const FunctionConstant> constants = {}) = 0;
  /// Writes the pipelines compiled so far to the cache on disk, where there is one.
  virtual void store_pipelines() = 0;
  /// An empty list. Keeps the machine from sleeping or throttling while it is not done.
  [[nodiscard]] virtual std::unique_ptr<CommandList> begin() = 0;
};

/// kExhausted where `size` bytes for `what` beside `allocated` ones are more than the device offers.
[[nodiscard]] Result<void> check_working_set(const DeviceFacts& facts, std::int64_t allocated,
                                             std::size_t size, std::string_view what);

/// The system's GPU through Metal. kUnsupported where this build or this machine has none.
[[nodiscard]] Result<std::unique_ptr<GpuDevice>> make_metal_device();
/// The kernels on this machine's CPU. kUnsupported where the build had no clang to compile them with, or the
/// CPU lacks what they were compiled for.
[[nodiscard]] Result<std::unique_ptr<GpuDevice>> make_emulated_device();

/// Whether the build holds them.
[[nodiscard]] bool has_metal_device();
[[nodiscard]] bool has_emulated_device();

}  // namespace lily::metal
