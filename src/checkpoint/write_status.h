// What several threads that write files share: how far they are, whether to stop, and the first failure.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

#include "base/result.h"

namespace lily {

/// Called with bytes written so far and in all, never by two threads at once; returning false cancels.
using WriteProgress = std::function<bool(std::int64_t done, std::int64_t total)>;

class WriteStatus {
 public:
  WriteStatus(std::int64_t total, const WriteProgress& progress) : total_(total), progress_(progress) {}

  [[nodiscard]] bool stopped() const { return stop_; }

  /// `bytes` more are there, or `written` says why not. What comes after a failure is not counted.
  void add(Result<void> written, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (stop_) return;
    done_ += bytes;
    if (written.ok() && progress_ && !progress_(done_, total_)) {
      written = fail(ErrorCode::kCancelled, "cancelled");
    }
    if (written.ok()) return;
    result_ = std::move(written);
    stop_ = true;
  }

  /// When no thread adds any more.
  Result<void> take() { return std::move(result_); }

 private:
  std::int64_t total_;
  const WriteProgress& progress_;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::int64_t done_ = 0;
  Result<void> result_;
};

}  // namespace lily
