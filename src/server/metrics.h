// GET /metrics: counters, gauges and histograms in Prometheus' text format (version 0.0.4).
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace lily {

/// How many values were at most each of some bounds.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);  ///< ascending
  void observe(double value);
  /// The lines of the family `name`, with their HELP and TYPE.
  void write(std::string_view name, std::string_view help, std::string& out) const;

 private:
  std::vector<double> bounds_;
  std::vector<std::int64_t> counts_;  // of each bound alone; the last one is +Inf
  double sum_ = 0;
};

/// Thread-safe.
class Metrics {
 public:
  Metrics();
  /// A finished request.
  void record(FinishReason reason, const GenerationUsage& usage);
  [[nodiscard]] std::string text(const Engine::Stats& stats) const;

 private:
  void write_engine(const Engine::Stats& stats, std::string& out) const;
  void write_cache(const PrefixCache::Stats& cache, std::string& out) const;

  mutable std::mutex mutex_;
  std::map<std::string_view, std::int64_t> finished_;  // by reason
  Histogram queue_;
  Histogram first_token_;
  Histogram token_;
  Histogram request_;
  Histogram prompt_tokens_;
};

}  // namespace lily
