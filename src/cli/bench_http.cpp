#include "cli/bench_http.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <thread>

namespace lily {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::array<std::string_view, 64> kWords = {
    "the",  "of",   "and",   "to",    "in",    "is",   "that",  "it",   "was",  "for",   "on",
    "are",  "as",   "with",  "they",  "at",    "be",   "this",  "have", "from", "or",    "one",
    "had",  "by",   "word",  "but",   "not",   "what", "all",   "were", "we",   "when",  "your",
    "can",  "said", "there", "use",   "an",    "each", "which", "she",  "do",   "how",   "their",
    "if",   "will", "up",    "other", "about", "out",  "many",  "then", "them", "these", "so",
    "some", "her",  "would", "make",  "like",  "him",  "into",  "time", "has"};

constexpr std::int64_t kSample = 200;       // words that say how many tokens a word is
constexpr std::int64_t kAnswerBehind = 16;  // tokens of the answer that a warm turn follows

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// One streamed answer.
struct Answer {
  Clock::time_point first;  // when its first text came
  Clock::time_point last;
  std::vector<Clock::time_point> events = {};
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::string text = {};
};

std::int64_t count_of(const Json& event, const char* name) {
  const auto usage = event.find("usage");
  return usage != event.end() && usage->is_object() ? usage->value(name, std::int64_t{0}) : 0;
}

// The text of one event's choice; empty where it has none.
std::string text_of(const Json& event) {
  const auto choices = event.find("choices");
  if (choices == event.end() || !choices->is_array() || choices->empty()) return "";
  return choices->front().value("text", "");
}

class HttpBench {
 public:
  HttpBench(const ApiClient& client, std::string model, const BenchmarkOptions& options)
      : client_(client), model_(std::move(model)), options_(options) {}

  // How many words make a token here; the prompt's own beginning and end count in.
  Result<void> measure_words() {
    LILY_TRY(const Answer answer, ask(benchmark_words(kSample, next_seed()), 1));
    words_per_token_ = static_cast<double>(kSample) / static_cast<double>(answer.prompt_tokens);
    return {};
  }

  Result<BenchmarkRun> run(const BenchmarkShape& shape, const std::string& what) {
    if (options_.progress && !options_.progress(what)) return fail(ErrorCode::kCancelled, "interrupted");
    LILY_TRY_VOID(prepare(shape.cached));
    std::vector<std::optional<Result<Answer>>> answers(static_cast<std::size_t>(shape.streams));
    std::vector<std::string> prompts(answers.size());
    for (std::string& prompt : prompts) prompt = behind_ + words(shape.prompt);
    const auto start = Clock::now();
    {
      std::vector<std::jthread> streams;
      streams.reserve(answers.size());
      for (std::size_t i = 0; i < answers.size(); ++i) {
        streams.emplace_back([&, i] { answers[i] = ask(prompts[i], options_.decode + 1); });
      }
    }
    return summary(answers, start, what);
  }

 private:
  // The conversation that warm turns go on from: read and answered once, kept for the next run.
  Result<void> prepare(std::int64_t cached) {
    if (cached == cached_) return {};
    cached_ = cached;
    behind_.clear();
    behind_tokens_ = 0;
    if (cached == 0) return {};
    const std::string start = words(cached - kAnswerBehind);
    LILY_TRY(const Answer answer, ask(start, kAnswerBehind));
    behind_ = start + answer.text + "\n";
    behind_tokens_ = answer.prompt_tokens + answer.completion_tokens;
    return {};
  }

  Result<Answer> ask(const std::string& prompt, std::int64_t max_tokens) const {
    Answer answer;
    const Json body = {{"model", model_},
                       {"prompt", prompt},
                       {"max_tokens", max_tokens},
                       {"temperature", 0},
                       {"ignore_eos", true},
                       {"stream", true},
                       {"stream_options", {{"include_usage", true}}}};
    LILY_TRY_VOID(client_.stream("/completions", body, [&](const Json& event) -> Result<void> {
      if (const auto error = event.find("error"); error != event.end()) {
        return fail(ErrorCode::kIo, "{}: the answer ended with {}", client_.base(), error->dump());
      }
      if (std::string text = text_of(event); !text.empty()) {
        answer.events.push_back(Clock::now());
        answer.text += text;
      }
      answer.prompt_tokens = std::max(answer.prompt_tokens, count_of(event, "prompt_tokens"));
      answer.completion_tokens = std::max(answer.completion_tokens, count_of(event, "completion_tokens"));
      return {};
    }));
    if (answer.events.empty() || answer.prompt_tokens == 0) {
      return fail(
          ErrorCode::kIo,
          "{}: expected a streamed answer with its usage, found {} pieces of text and {} prompt tokens",
          client_.base(), answer.events.size(), answer.prompt_tokens);
    }
    answer.first = answer.events.front();
    answer.last = answer.events.back();
    return answer;
  }

  Result<BenchmarkRun> summary(const std::vector<std::optional<Result<Answer>>>& answers,
                               Clock::time_point start, const std::string& what) const {
    BenchmarkRun run;
    Clock::time_point first = Clock::time_point::max();
    Clock::time_point last = start;
    for (const auto& answer : answers) {
      if (!answer->ok()) return answer->error();
      const Answer& a = **answer;
      run.read += a.prompt_tokens - behind_tokens_;
      run.prefill_seconds = std::max(run.prefill_seconds, seconds_between(start, a.first));
      run.decoded += a.completion_tokens - 1;
      first = std::min(first, a.first);
      last = std::max(last, a.last);
      for (std::size_t i = 1; i < a.events.size(); ++i) {
        run.step_seconds.push_back(seconds_between(a.events[i - 1], a.events[i]));
      }
    }
    run.decode_seconds = seconds_between(first, last);
    if (run.decoded < 1 || run.decode_seconds <= 0) {
      return fail(ErrorCode::kIo, "{}: {}: expected {} tokens a stream, found no more than the first",
                  client_.base(), what, options_.decode + 1);
    }
    return run;
  }

  std::string words(std::int64_t tokens) {
    return benchmark_words(std::llround(static_cast<double>(tokens) * words_per_token_), next_seed());
  }

  // Another server run must not find this one's prompts in its cache either.
  std::uint64_t next_seed() { return seeds_(); }

  const ApiClient& client_;
  std::string model_;
  const BenchmarkOptions& options_;
  std::mt19937_64 seeds_{std::random_device{}()};
  double words_per_token_ = 1;
  std::int64_t cached_ = 0;
  std::string behind_;
  std::int64_t behind_tokens_ = 0;
};

}  // namespace

Result<std::string> served_model(const ApiClient& client) {
  LILY_TRY(const Json models, client.get("/models"));
  const auto data = models.find("data");
  if (data == models.end() || !data->is_array() || data->empty() || !data->front().contains("id")) {
    return fail(ErrorCode::kCorrupt, "{}/models: expected a list of models, found {}", client.base(),
                models.dump());
  }
  return data->front()["id"].get<std::string>();
}

Result<std::vector<BenchmarkRow>> run_http_benchmark(const ApiClient& client, const std::string& model,
                                                     const BenchmarkOptions& options) {
  std::vector<BenchmarkRow> rows;
  for (const BenchmarkShape& shape : options.shapes) {
    if (shape.cached > 0 && shape.cached <= 2 * kAnswerBehind) {
      return fail(ErrorCode::kInvalidArgument, "{}: expected more than {} tokens to go on from", shape.name(),
                  2 * kAnswerBehind);
    }
    rows.push_back({.shape = shape});
  }
  HttpBench bench(client, model, options);
  LILY_TRY_VOID(bench.measure_words());
  LILY_TRY_VOID(run_rounds(
      options, [&](const BenchmarkShape& shape, const std::string& what) { return bench.run(shape, what); },
      rows));
  return rows;
}

std::string benchmark_words(std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text;
  for (std::int64_t i = 0; i < count; ++i) {
    text += ' ';
    text += kWords[random() % kWords.size()];
  }
  return text;
}

}  // namespace lily
