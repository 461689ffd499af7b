#include "server/metrics.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace lily {
namespace {

const std::vector<double> kSeconds{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};
const std::vector<double> kTokenSeconds{0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1};
const std::vector<double> kTokens{64, 256, 1024, 4096, 16384, 65536, 262144};

void write_head(std::string_view name, std::string_view type, std::string_view help, std::string& out) {
  out += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
}

void write_value(std::string_view name, std::string_view type, std::string_view help, std::int64_t value,
                 std::string& out) {
  write_head(name, type, help, out);
  out += fmt::format("{} {}\n", name, value);
}

// Of this process; -1 where the system has no /proc.
std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t size = 0;
  std::int64_t resident = 0;
  if (!(statm >> size >> resident)) return -1;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void Histogram::observe(double value) {
  const auto bound = std::ranges::lower_bound(bounds_, value);
  ++counts_[static_cast<std::size_t>(bound - bounds_.begin())];
  sum_ += value;
}

void Histogram::write(std::string_view name, std::string_view help, std::string& out) const {
  write_head(name, "histogram", help, out);
  std::int64_t below = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    const std::string bound = i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf";
    out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, bound, below);
  }
  out += fmt::format("{0}_sum {1}\n{0}_count {2}\n", name, sum_, below);
}

Metrics::Metrics()
    : queue_(kSeconds),
      first_token_(kSeconds),
      token_(kTokenSeconds),
      request_(kSeconds),
      prompt_tokens_(kTokens) {
  for (const auto reason : {FinishReason::kStop, FinishReason::kLength, FinishReason::kCancelled,
                            FinishReason::kTimeout, FinishReason::kError}) {
    finished_[finish_reason_name(reason)] = 0;
  }
}

void Metrics::record(FinishReason reason, const GenerationUsage& usage) {
  const std::lock_guard lock(mutex_);
  ++finished_[finish_reason_name(reason)];
  prompt_tokens_.observe(static_cast<double>(usage.prompt_tokens));
  request_.observe(usage.queue_seconds + usage.prefill_seconds + usage.decode_seconds);
  if (usage.completion_tokens == 0) return;
  queue_.observe(usage.queue_seconds);
  first_token_.observe(usage.queue_seconds + usage.prefill_seconds);
  if (usage.completion_tokens > 1) {
    token_.observe(usage.decode_seconds / static_cast<double>(usage.completion_tokens - 1));
  }
}

std::string Metrics::text(const Engine::Stats& stats) const {
  std::string out;
  {
    const std::lock_guard lock(mutex_);
    write_head("lily_requests_total", "counter", "Requests that have ended, by how.", out);
    for (const auto& [reason, count] : finished_) {
      out += fmt::format("lily_requests_total{{reason=\"{}\"}} {}\n", reason, count);
    }
    queue_.write("lily_queue_seconds", "Time a request waited for its slot.", out);
    first_token_.write("lily_time_to_first_token_seconds", "From a request's arrival to its first token.",
                       out);
    token_.write("lily_time_per_output_token_seconds", "Of a request's tokens after the first, on average.",
                 out);
    request_.write("lily_request_seconds", "From a request's arrival to its end.", out);
    prompt_tokens_.write("lily_prompt_tokens", "Length of prompts.", out);
  }
  write_engine(stats, out);
  write_cache(stats.cache, out);
  return out;
}

void Metrics::write_engine(const Engine::Stats& stats, std::string& out) const {
  write_value("lily_requests_running", "gauge", "Requests that have a slot.", stats.running, out);
  write_value("lily_requests_queued", "gauge", "Requests that wait for a slot.", stats.queued, out);
  write_value("lily_requests_refused_total", "counter", "Requests that found the queue full.", stats.refused,
              out);
  write_value("lily_prompt_tokens_evaluated_total", "counter", "Prompt tokens read, cached ones left out.",
              stats.work.prompt_tokens, out);
  write_value("lily_generated_tokens_total", "counter", "Tokens sampled.", stats.work.generated_tokens, out);
  write_value("lily_steps_total", "counter", "Steps of the engine.", stats.work.steps, out);
  write_value("lily_kv_pages", "gauge", "K/V pages of 256 tokens.", stats.kv_pages, out);
  write_value("lily_kv_pages_free", "gauge", "K/V pages that neither a request nor the cache holds.",
              stats.free_kv_pages, out);
  if (const auto bytes = resident_bytes(); bytes >= 0) {
    write_value("process_resident_memory_bytes", "gauge", "Memory of the process, mapped weights included.",
                bytes, out);
  }
}

void Metrics::write_cache(const PrefixCache::Stats& cache, std::string& out) const {
  write_value("lily_prefix_cache_lookups_total", "counter", "Prompts looked up.", cache.lookups, out);
  write_value("lily_prefix_cache_hits_total", "counter", "Prompts that resumed at a checkpoint.", cache.hits,
              out);
  write_value("lily_prefix_cache_hit_tokens_total", "counter", "Prompt tokens that were not read again.",
              cache.hit_tokens, out);
  write_value("lily_prefix_cache_evictions_total", "counter", "Checkpoints given up.", cache.evicted, out);
  write_value("lily_prefix_cache_checkpoints", "gauge", "Checkpoints held.", cache.checkpoints, out);
  write_value("lily_prefix_cache_bytes", "gauge", "Memory of the checkpoints.", cache.bytes, out);
  write_value("lily_prefix_cache_budget_bytes", "gauge", "What that may be (--cache-mib).", cache.budget,
              out);
}

}  // namespace lily
