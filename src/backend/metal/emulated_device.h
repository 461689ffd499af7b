// A GpuDevice on this machine's CPU: the same kernels, run by the executor. Slow, and exact about what goes
// wrong.
#pragma once

#include <memory>
#include <random>
#include <span>
#include <vector>

#include "backend/metal/emulator/executor.h"
#include "backend/metal/gpu_device.h"

namespace lily::metal {

/// The kernels linked into this program, a table for each .metal file.
[[nodiscard]] std::span<const emu::KernelTable* const> linked_kernels();

struct EmulatedOptions {
  emu::ExecutorOptions executor = {};
  std::span<const emu::KernelTable* const> kernels = linked_kernels();
  /// Lists run when they are waited for and not when they are submitted: who reads too early finds nothing
  /// yet.
  bool late = false;
  /// Dispatches between two barriers run in random order.
  bool shuffled = false;
  /// This barrier() of the program does nothing, counted from 1.
  std::int64_t muted_barrier = 0;
  std::int64_t* barriers = nullptr;  ///< counts the barrier() calls
};

class EmulatedList;

class EmulatedDevice final : public GpuDevice {
 public:
  explicit EmulatedDevice(const EmulatedOptions& options);
  ~EmulatedDevice() override;

  [[nodiscard]] const DeviceFacts& facts() const override { return facts_; }
  [[nodiscard]] Result<std::unique_ptr<GpuBuffer>> allocate(std::size_t size, std::string_view what) override;
  [[nodiscard]] Result<std::unique_ptr<GpuPipeline>> pipeline(
      std::string_view kernel, std::span<const FunctionConstant> constants) override;
  void store_pipelines() override {}
  [[nodiscard]] std::unique_ptr<CommandList> begin() override;

 private:
  friend class EmulatedList;
  /// Runs what was submitted, up to and with `last`.
  void run_until(const EmulatedList& last);

  const EmulatedOptions options_;
  emu::Executor executor_;
  DeviceFacts facts_;
  std::int64_t allocated_ = 0;
  std::int64_t barriers_ = 0;
  std::vector<EmulatedList*> submitted_;  ///< not run yet, in order
  std::mt19937_64 random_;
};

}  // namespace lily::metal
