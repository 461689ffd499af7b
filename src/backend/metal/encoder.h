// Encodes dispatches with what they read and write, and puts barriers where those demand them.
#pragma once

#include <memory>
#include <vector>

#include "backend/metal/arena.h"
#include "backend/metal/level_planner.h"

namespace lily::metal {

/// Threadgroups of `size` that cover `count`.
[[nodiscard]] constexpr std::uint32_t groups_of(std::int64_t size, std::int64_t count) {
  return static_cast<std::uint32_t>((count + size - 1) / size);
}

class Encoder {
 public:
  explicit Encoder(GpuDevice& device) : device_(device) {}

  /// The kernel of the next dispatch, whose arguments follow.
  Encoder& use(const GpuPipeline& pipeline);
  /// What no kernel writes: no barrier is due to it.
  Encoder& constants(unsigned index, const View& view);
  Encoder& read(unsigned index, const View& view) { return access(index, view, AccessKind::kRead); }
  Encoder& write(unsigned index, const View& view) { return access(index, view, AccessKind::kWrite); }
  Encoder& write_part(unsigned index, const View& view) {
    return access(index, view, AccessKind::kWritePart);
  }
  template <class T>
  Encoder& value(unsigned index, const T& value) {
    list().set_value(index, value);
    return *this;
  }
  void dispatch(Extents threadgroups, std::uint32_t threads);

  /// Hands over what was encoded; the device may start on it while more is encoded.
  void submit();
  /// Submits, and waits for everything handed over so far: the first error of it.
  [[nodiscard]] Result<void> finish();

  [[nodiscard]] std::int64_t lists() const { return lists_; }  ///< handed over
  [[nodiscard]] std::int64_t levels() const { return planner_.levels(); }
  [[nodiscard]] std::int64_t dispatches() const { return dispatches_; }

 private:
  Encoder& access(unsigned index, const View& view, AccessKind kind);
  [[nodiscard]] CommandList& list();

  GpuDevice& device_;
  std::unique_ptr<CommandList> list_;
  std::vector<std::unique_ptr<CommandList>> submitted_;
  LevelPlanner planner_;
  std::vector<Access> accesses_;  ///< of the next dispatch
  std::int64_t dispatches_ = 0;
  std::int64_t lists_ = 0;
};

}  // namespace lily::metal
