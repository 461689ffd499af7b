// What `lily bench` measured, and its forms: a table for people, JSON, CSV, Markdown, a plot.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/memory.h"
#include "engine/benchmark.h"

namespace lily {

struct BenchReport {
  std::string model = {};
  std::string backend = {};  ///< or the server's address
  std::int64_t decode = 0;
  std::int64_t rounds = 0;
  double load_seconds = 0;   ///< opening the model; 0: a server's, not measured
  double bandwidth = 0;      ///< bytes a second; 0: not measured
  double arithmetic = 0;     ///< multiply-adds a second that registers reach; 0: not measured
  std::int64_t planned = 0;  ///< most bytes that may be resident
  MemoryUse memory = {};     ///< after the last run
  std::vector<BenchmarkRow> rows = {};
  std::vector<std::string> left_out = {};  ///< shapes that do not fit this machine, and why
};

[[nodiscard]] std::string bench_text(const BenchReport& report);
[[nodiscard]] std::string bench_markdown(const BenchReport& report);
[[nodiscard]] std::string bench_csv(const BenchReport& report);
[[nodiscard]] std::string bench_json(const BenchReport& report);
/// Prefill and decoding rates by context, of the rows that may be quoted; an SVG document.
[[nodiscard]] std::string bench_svg(const BenchReport& report);

}  // namespace lily
