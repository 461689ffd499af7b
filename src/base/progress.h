// How far a long job is: one line on stderr that rewrites itself, on a terminal only.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace lily {

enum class ProgressUnit { kBytes, kTokens };

/// What a progress line shows.
struct ProgressState {
  std::string label;
  ProgressUnit unit = ProgressUnit::kTokens;
  std::int64_t done = 0;
  std::int64_t total = 0;
  double seconds = 0;  ///< since the start
};

/// "eval [######          ]  38 %  1200/3141 tokens  812 tok/s  2.4 s left", at most `width` columns.
[[nodiscard]] std::string format_progress(const ProgressState& state, int width);

class Progress {
 public:
  Progress(std::string label, ProgressUnit unit, std::int64_t total);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  ///< erases the line

  /// Draws from a third of a second on, so that short jobs leave no flicker, and at most ten times a second.
  void update(std::int64_t done);
  /// Erases the line, so that something else can be printed.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  ProgressState state_;
  bool enabled_ = false;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_draw_;
};

}  // namespace lily
