#include "base/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/units.h"

namespace lily {
namespace {

constexpr auto kFirstDraw = std::chrono::milliseconds(333);
constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr int kBarWidth = 24;

int terminal_width() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

std::string amounts(const ProgressState& state, double rate) {
  if (state.unit == ProgressUnit::kBytes) {
    return fmt::format("{} of {}  {}/s", format_bytes(static_cast<double>(state.done)),
                       format_bytes(static_cast<double>(state.total)), format_bytes(rate));
  }
  return fmt::format("{}/{} tokens  {:.{}f} tok/s", state.done, state.total, rate, rate < 10 ? 1 : 0);
}

}  // namespace

std::string format_progress(const ProgressState& state, int width) {
  const double part =
      state.total > 0
          ? std::clamp(static_cast<double>(state.done) / static_cast<double>(state.total), 0.0, 1.0)
          : 0.0;
  const double rate = state.seconds > 0 ? static_cast<double>(state.done) / state.seconds : 0;
  const auto filled = static_cast<std::size_t>(part * kBarWidth);
  std::string bar(filled, '#');
  bar.resize(kBarWidth, ' ');
  std::string line = fmt::format("{} [{}] {:3.0f} %  {}", state.label, bar, part * 100, amounts(state, rate));
  if (rate > 0 && state.done < state.total) {
    line += fmt::format("  {} left", format_seconds(static_cast<double>(state.total - state.done) / rate));
  }
  line.resize(std::min(line.size(), static_cast<std::size_t>(std::max(width, 0))));
  return line;
}

Progress::Progress(std::string label, ProgressUnit unit, std::int64_t total)
    : state_{.label = std::move(label), .unit = unit, .total = total},
      enabled_(::isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  clear();
}

void Progress::update(std::int64_t done) {
  const auto now = Clock::now();
  if (!enabled_ || now - start_ < kFirstDraw || (drawn_ && now - last_draw_ < kRedraw)) return;
  state_.done = done;
  state_.seconds = std::chrono::duration<double>(now - start_).count();
  fmt::print(stderr, "\r{}\x1b[K", format_progress(state_, terminal_width() - 1));
  std::fflush(stderr);
  drawn_ = true;
  last_draw_ = now;
}

void Progress::clear() {
  if (!drawn_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace lily
