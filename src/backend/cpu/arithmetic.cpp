#include "backend/cpu/arithmetic.h"

#include <algorithm>
#include <atomic>
#include <chrono>

namespace lily::cpu {

double measure_multiply_rate(Multiplied (*multiply)(std::int64_t rounds), ThreadPool& pool) {
  constexpr int kPasses = 8;
  constexpr std::int64_t kRounds = std::int64_t{1} << 20;  // some milliseconds, far longer than a start
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    std::atomic<std::int64_t> count{0};
    const auto start = std::chrono::steady_clock::now();
    pool.run([&](int) { count += multiply(kRounds).count; });
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(count.load()) / std::max(elapsed.count(), 1e-9));
  }
  return best;
}

}  // namespace lily::cpu
