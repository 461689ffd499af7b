#include "engine/benchmark.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>

#include "engine/sampler.h"

namespace lily {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Sequences that are read and continued greedily, with the time each part took.
class Timed {
 public:
  Timed(LoadedModel& model, const BenchmarkOptions& options)
      : model_(model), options_(options), greedy_({.temperature = 0}, model.vocab_end()) {}

  Result<BenchmarkRun> run(const BenchmarkShape& shape, const std::string& what) {
    what_ = what;
    LILY_TRY_VOID(prepare(shape.cached));
    BenchmarkRun run{.read = shape.prompt * shape.streams};
    std::vector<Sequence> sequences;
    const auto start = Clock::now();
    for (std::int64_t stream = 0; stream < shape.streams; ++stream) {
      LILY_TRY(Sequence sequence, behind_ ? behind_->fork() : Sequence::create(model_.pool()));
      LILY_TRY(const TokenId first, read(sequence, shape, stream));
      sequences.push_back(std::move(sequence));
      run.tokens.push_back(first);
    }
    run.prefill_seconds = seconds_since(start);
    LILY_TRY_VOID(decode(sequences, run));
    return run;
  }

 private:
  // The sequence that warm turns start from; kept for the next run.
  Result<void> prepare(std::int64_t cached) {
    if (behind_ && behind_->length() == cached) return {};
    behind_.reset();
    if (cached == 0) return {};
    LILY_TRY(Sequence sequence, Sequence::create(model_.pool()));
    const std::vector<TokenId> tokens = benchmark_prompt(0, cached, model_.shapes().vocab);
    LILY_TRY_VOID(model_.prefill(sequence, tokens, Logits::kNone, logits_, options_.chunk, progress()));
    behind_ = std::move(sequence);
    return {};
  }

  // Every stream reads tokens of its own: equal ones would go to equal experts.
  Result<TokenId> read(Sequence& sequence, const BenchmarkShape& shape, std::int64_t stream) {
    const std::vector<TokenId> prompt =
        benchmark_prompt(shape.cached + stream * shape.prompt, shape.prompt, model_.shapes().vocab);
    LILY_TRY_VOID(model_.prefill(sequence, prompt, Logits::kLast, logits_, options_.chunk, progress()));
    return greedy_.sample(logits_, prompt, {}, false, 0).id;
  }

  Result<void> decode(std::span<Sequence> sequences, BenchmarkRun& run) {
    std::vector<TokenId> last = run.tokens;
    for (std::int64_t i = 0; i < options_.decode; ++i) {
      const auto start = Clock::now();
      LILY_TRY_VOID(model_.decode_greedy(sequences, last, logits_));
      run.step_seconds.push_back(seconds_since(start));
      if (std::ranges::min(last) < 0) {
        return fail(ErrorCode::kInternal, "{}: logits that are not numbers", what_);
      }
      run.tokens.insert(run.tokens.end(), last.begin(), last.end());
      if (!progress()(0)) return fail(ErrorCode::kCancelled, "interrupted");
    }
    run.decode_seconds = std::accumulate(run.step_seconds.begin(), run.step_seconds.end(), 0.0);
    run.decoded = options_.decode * std::ssize(sequences);
    return {};
  }

  std::function<bool(std::int64_t)> progress() const {
    return [this](std::int64_t) { return !options_.progress || options_.progress(what_); };
  }

  LoadedModel& model_;
  const BenchmarkOptions& options_;
  Sampler greedy_;
  std::string what_;
  std::optional<Sequence> behind_;
  std::vector<float> logits_;
};

// Tokens that a sequence of this shape holds at the end.
std::int64_t longest(const BenchmarkShape& shape, std::int64_t decode) {
  return shape.cached + shape.prompt + decode;
}

Result<void> check_shape(const LoadedModel& model, const BenchmarkShape& shape, std::int64_t decode) {
  if (shape.prompt < 1 || longest(shape, decode) > model.max_seq()) {
    return fail(ErrorCode::kInvalidArgument, "{}: expected 1 to {} tokens of prompt ({} less {} decoded{})",
                shape.name(), model.max_seq() - decode - shape.cached, model.max_seq(), decode,
                shape.cached > 0 ? fmt::format(" and {} cached", shape.cached) : "");
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
  return run.decode_seconds;
}

}  // namespace

std::string BenchmarkShape::name() const {
  if (streams > 1) return fmt::format("{} streams of {}", streams, prompt);
  if (cached > 0) return fmt::format("{} behind {}", prompt, cached);
  return fmt::format("context {}", prompt);
}

double BenchmarkRow::prefill_seconds() const {
  return median_of(runs, prefill_of);
}
double BenchmarkRow::decode_seconds() const {
  return median_of(runs, decode_of);
}
double BenchmarkRow::prefill_tokens_per_second() const {
  return static_cast<double>(runs.front().read) / prefill_seconds();
}
double BenchmarkRow::decode_tokens_per_second() const {
  return static_cast<double>(runs.front().decoded) / decode_seconds();
}
double BenchmarkRow::bytes_per_second() const {
  return bytes_per_token * decode_tokens_per_second();
}
double BenchmarkRow::multiplies_per_second() const {
  return multiplies_per_token * prefill_tokens_per_second();
}
double BenchmarkRow::spread() const {
  return std::max(spread_of(runs, prefill_of), spread_of(runs, decode_of));
}
std::string BenchmarkRow::refused() const {
  for (const BenchmarkRun& run : runs) {
    if (run.tokens != runs.front().tokens) return "two greedy runs gave different tokens";
  }
  if (spread() > kLargestSpread) return fmt::format("rounds differ by {:.1f} %", 100 * spread());
  return "";
}

Result<void> run_rounds(const BenchmarkOptions& options, const BenchmarkRunner& run,
                        std::vector<BenchmarkRow>& rows) {
  for (std::int64_t round = 0; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      // Every second round goes backwards, so that a machine that heats up does not favour short contexts.
      BenchmarkRow& row = rows[round % 2 == 0 ? i : rows.size() - 1 - i];
      const std::string what = fmt::format("{}, round {} of {}", row.shape.name(), round + 1, options.rounds);
      LILY_TRY_VOID(run(row.shape, what + ", warm-up"));
      LILY_TRY(BenchmarkRun timed, run(row.shape, what));
      row.runs.push_back(std::move(timed));
    }
  }
  return {};
}

Result<std::vector<BenchmarkRow>> run_benchmark(LoadedModel& model, const BenchmarkOptions& options) {
  std::vector<BenchmarkRow> rows;
  for (const BenchmarkShape& shape : options.shapes) {
    LILY_TRY_VOID(check_shape(model, shape, options.decode));
    const std::int64_t middle = longest(shape, options.decode / 2);
    rows.push_back({.shape = shape,
                    .bytes_per_token = shape.streams == 1 ? decode_bytes(model, middle) : 0,
                    .multiplies_per_token = prompt_multiplies(model.weights())});
  }
  Timed timed(model, options);
  LILY_TRY_VOID(run_rounds(
      options, [&](const BenchmarkShape& shape, const std::string& what) { return timed.run(shape, what); },
      rows));
  return rows;
}

BenchmarkRoom benchmark_room(const BenchmarkOptions& options) {
  const auto whole_pages = [](std::int64_t tokens) {
    return (tokens + kKvPageTokens - 1) / kKvPageTokens * kKvPageTokens;
  };
  BenchmarkRoom room;
  for (const BenchmarkShape& shape : options.shapes) {
    const std::int64_t behind =
        shape.cached > 0 ? 1 : 0;  // a sequence of its own, whose full pages are shared
    const std::int64_t length = longest(shape, options.decode);
    room.slots = std::max(room.slots, shape.streams + behind);
    room.max_seq = std::max(room.max_seq, length);
    room.kv_tokens =
        std::max(room.kv_tokens, shape.streams * whole_pages(length) + behind * whole_pages(shape.cached));
  }
  return room;
}

std::vector<TokenId> benchmark_prompt(std::int64_t begin, std::int64_t length, std::int64_t vocab) {
  std::vector<TokenId> prompt(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    const std::uint64_t hash = ((static_cast<std::uint64_t>(begin) + i) * 2654435761ULL) & 0xffffffffULL;
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

double prompt_multiplies(const ModelWeights& weights) {
  const WeightParts active = weights.active_parameters();
  return static_cast<double>(active.total() - active.norms - active.head);
}

double median(std::vector<double> values) {
  LILY_CHECK(!values.empty(), "median of nothing");
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace lily
