// Runs kernels on this machine's CPU with a GPU's semantics: every thread of a threadgroup is a fiber, 32 of
// them a SIMD-group, barriers and SIMD-group operations are where they wait for each other. What a GPU leaves
// undefined is made to show: fresh threadgroup memory is NaN, threads that part ways at a barrier are an
// error.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "backend/metal/emulator/kernel.h"
#include "backend/metal/emulator/threadgroup.h"
#include "base/result.h"
#include "base/threads.h"

namespace lily::metal::emu {

inline constexpr std::size_t kStackBytes = 64 << 10;  ///< of a thread

/// Told about everything that decides whether two accesses are ordered (race_checker.h). Threadgroups then
/// run one at a time.
class AccessObserver {
 public:
  virtual ~AccessObserver() = default;
  /// Launches from here on see what earlier ones wrote.
  virtual void begin_level() = 0;
  virtual void begin_launch(const Launch& launch) = 0;
  virtual void begin_group() = 0;
  virtual void add_shared(const SharedObject& object) = 0;
};

/// A file's name and a line.
using BarrierPlace = std::pair<std::string, unsigned>;

struct ExecutorOptions {
  int threads = 0;            ///< of the CPU; 0: as many as it has cores
  bool random_order = false;  ///< of lanes and SIMD-groups, by `seed`
  std::uint64_t seed = 1;
  AccessObserver* observer = nullptr;
  std::set<BarrierPlace>* reached = nullptr;  ///< collects barriers of kernels; with an observer only
  const BarrierPlace* muted = nullptr;        ///< this barrier does nothing
};

class Executor {
 public:
  class Worker;
  explicit Executor(const ExecutorOptions& options);
  ~Executor();
  /// The whole grid, or the first error in it: a divergence, a missing argument, what the observer found.
  [[nodiscard]] Result<void> run(const Launch& launch);

 private:
  ThreadPool pool_;
  std::uint64_t launches_ = 0;
  std::vector<std::unique_ptr<Worker>> workers_;  ///< one a thread of the pool
  const ExecutorOptions options_;
};

}  // namespace lily::metal::emu
