#include "backend/cpu/bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>

namespace lily::cpu {
namespace {

constexpr std::int64_t kLine = 64;
constexpr std::int64_t kAhead = 32 * kLine;
constexpr int kMostStreams = 8;

/// Reads every line of [begin, end) as `streams` interleaved streams, asked for in time; the result only
/// keeps the compiler from leaving the reads out.
std::uint64_t read_lines(const std::byte* data, std::int64_t begin, std::int64_t end, int streams) {
  std::uint64_t mixed[8] = {};
  const std::int64_t length = (end - begin) / streams / kLine * kLine;
  for (std::int64_t i = begin; i < begin + length; i += kLine) {
    for (int stream = 0; stream < streams; ++stream) {
      const std::byte* at = data + stream * length + i;
      __builtin_prefetch(at + kAhead);
      std::uint64_t line[8];
      std::memcpy(line, at, kLine);
      for (int j = 0; j < 8; ++j) mixed[j] ^= line[j];
    }
  }
  return mixed[0] ^ mixed[1] ^ mixed[2] ^ mixed[3] ^ mixed[4] ^ mixed[5] ^ mixed[6] ^ mixed[7];
}

}  // namespace

double measure_read_bandwidth(std::span<const std::byte> bytes, ThreadPool& pool) {
  double best = 0;
  std::atomic<std::uint64_t> mixed{0};
  for (const int streams : {1, 1, kMostStreams, kMostStreams}) {
    const auto start = std::chrono::steady_clock::now();
    pool.parallel_for(static_cast<std::int64_t>(bytes.size()), kLine,
                      [&](std::int64_t begin, std::int64_t end, int) {
                        mixed ^= read_lines(bytes.data(), begin, end, streams);
                      });
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(bytes.size()) / std::max(elapsed.count(), 1e-9));
  }
  return best;
}

}  // namespace lily::cpu
