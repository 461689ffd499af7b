#include "engine/benchmark.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "engine/sampler.h"

namespace lily {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A sequence that is read and continued greedily, with the time each part took.
class Timed {
 public:
  Timed(LoadedModel& model, const BenchmarkOptions& options)
      : model_(model), options_(options), greedy_({.temperature = 0}, model.vocab_end()) {}

  Result<BenchmarkRun> run(std::int64_t context, const std::string& what) {
    const std::vector<TokenId> prompt = benchmark_prompt(context, model_.shapes().vocab);
    LILY_TRY(Sequence sequence, Sequence::create(model_.pool()));
    const auto go_on = [&](std::int64_t) { return !options_.progress || options_.progress(what); };
    BenchmarkRun run;
    const auto start = Clock::now();
    LILY_TRY_VOID(model_.prefill(sequence, prompt, Logits::kLast, logits_, options_.chunk, go_on));
    run.tokens.push_back(sample(prompt));
    run.prefill_seconds = seconds_since(start);
    for (std::int64_t i = 0; i < options_.decode; ++i) {
      const auto step_start = Clock::now();
      LILY_TRY(const TokenId next, model_.decode_greedy(sequence, run.tokens.back(), logits_));
      if (next < 0) return fail(ErrorCode::kInternal, "{}: logits that are not numbers", what);
      run.tokens.push_back(next);
      run.step_seconds.push_back(seconds_since(step_start));
      if (!go_on(0)) return fail(ErrorCode::kCancelled, "interrupted");
    }
    return run;
  }

 private:
  TokenId sample(std::span<const TokenId> prompt) { return greedy_.sample(logits_, prompt, {}, false, 0).id; }

  LoadedModel& model_;
  const BenchmarkOptions& options_;
  Sampler greedy_;
  std::vector<float> logits_;
};

Result<void> check_context(const LoadedModel& model, std::int64_t context, std::int64_t decode) {
  if (context < 1 || context + decode > model.max_seq()) {
    return fail(ErrorCode::kInvalidArgument, "context {}: expected 1 to {} ({} less {} decoded tokens)",
                context, model.max_seq() - decode, model.max_seq(), decode);
  }
  return {};
}

template <class Value>
double median_of(const std::vector<BenchmarkRun>& runs, Value value) {
  std::vector<double> values(runs.size());
  std::ranges::transform(runs, values.begin(), value);
  return median(std::move(values));
}

template <class Value>
double spread_of(const std::vector<BenchmarkRun>& runs, Value value) {
  double least = value(runs.front());
  double most = least;
  for (const BenchmarkRun& run : runs) {
    least = std::min(least, value(run));
    most = std::max(most, value(run));
  }
  return least > 0 ? most / least - 1 : 0;
}

double prefill_of(const BenchmarkRun& run) {
  return run.prefill_seconds;
}
double decode_of(const BenchmarkRun& run) {
  return run.decode_seconds();
}

}  // namespace

double BenchmarkRun::decode_seconds() const {
  return std::accumulate(step_seconds.begin(), step_seconds.end(), 0.0);
}

double BenchmarkRow::prefill_seconds() const {
  return median_of(runs, prefill_of);
}
double BenchmarkRow::decode_seconds() const {
  return median_of(runs, decode_of);
}
double BenchmarkRow::prefill_tokens_per_second() const {
  return static_cast<double>(context) / prefill_seconds();
}
double BenchmarkRow::decode_tokens_per_second() const {
  return static_cast<double>(runs.front().step_seconds.size()) / decode_seconds();
}
double BenchmarkRow::bytes_per_second() const {
  return bytes_per_token * decode_tokens_per_second();
}
double BenchmarkRow::spread() const {
  return std::max(spread_of(runs, prefill_of), spread_of(runs, decode_of));
}

Result<std::vector<BenchmarkRow>> run_benchmark(LoadedModel& model, const BenchmarkOptions& options) {
  std::vector<BenchmarkRow> rows;
  for (const std::int64_t context : options.contexts) {
    LILY_TRY_VOID(check_context(model, context, options.decode));
    rows.push_back(
        {.context = context, .bytes_per_token = decode_bytes(model, context + options.decode / 2)});
  }
  Timed timed(model, options);
  for (std::int64_t round = 0; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      // Every second round goes backwards, so that a machine that heats up does not favour short contexts.
      BenchmarkRow& row = rows[round % 2 == 0 ? i : rows.size() - 1 - i];
      const std::string what =
          fmt::format("context {}, round {} of {}", row.context, round + 1, options.rounds);
      LILY_TRY_VOID(timed.run(row.context, what + ", warm-up"));
      LILY_TRY(BenchmarkRun run, timed.run(row.context, what));
      if (!row.runs.empty() && run.tokens != row.runs.front().tokens) {
        return fail(ErrorCode::kInternal, "context {}: two greedy runs gave different tokens", row.context);
      }
      row.runs.push_back(std::move(run));
    }
  }
  return rows;
}

std::vector<TokenId> benchmark_prompt(std::int64_t length, std::int64_t vocab) {
  std::vector<TokenId> prompt(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    const std::uint64_t hash = (i * 2654435761ULL) & 0xffffffffULL;
    prompt[i] = static_cast<TokenId>(hash % static_cast<std::uint64_t>(vocab));
  }
  return prompt;
}

double decode_bytes(LoadedModel& model, std::int64_t position) {
  const auto weights = static_cast<double>(model.weights().bytes_per_token());
  const auto state = 2.0 * static_cast<double>(model.backend().slot_bytes());
  const double kv_row =
      static_cast<double>(model.backend().page_bytes()) / static_cast<double>(kKvPageTokens);
  return weights + state + kv_row * static_cast<double>(position);
}

double median(std::vector<double> values) {
  LILY_CHECK(!values.empty(), "median of nothing");
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace lily
