#include "backend/cpu/bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>

namespace lily::cpu {
namespace {

constexpr std::int64_t kLine = 64;

/// Reads every line of [begin, end); the result only keeps the compiler from leaving the reads out.
std::uint64_t read_lines(const std::byte* data, std::int64_t begin, std::int64_t end) {
  std::uint64_t mixed[8] = {};
  for (std::int64_t i = begin; i + kLine <= end; i += kLine) {
    std::uint64_t line[8];
    std::memcpy(line, data + i, kLine);
    for (int j = 0; j < 8; ++j) mixed[j] ^= line[j];
  }
  return mixed[0] ^ mixed[1] ^ mixed[2] ^ mixed[3] ^ mixed[4] ^ mixed[5] ^ mixed[6] ^ mixed[7];
}

}  // namespace

double measure_read_bandwidth(std::span<const std::byte> bytes, ThreadPool& pool) {
  double best = 0;
  std::atomic<std::uint64_t> mixed{0};
  for (int pass = 0; pass < 3; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    pool.parallel_for(
        static_cast<std::int64_t>(bytes.size()), kLine,
        [&](std::int64_t begin, std::int64_t end, int) { mixed ^= read_lines(bytes.data(), begin, end); });
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(bytes.size()) / std::max(elapsed.count(), 1e-9));
  }
  return best;
}

}  // namespace lily::cpu
