// lily selftest: whether a backend computes on this machine what the reference does. For machines where
// nobody has run it yet: the report is made to be pasted into an issue.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "backend/self_test.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/machine.h"
#include "cli/version.h"
#include "engine/evaluate.h"

namespace lily {
namespace {

/// A line of the report.
struct Check {
  std::string name;
  bool passed = false;
  std::string found;
};

// Roundings to bf16, half or int8 and what they change in the routing of random models; a wrong kernel is off
// by far more.
constexpr double kLargestBlockError = 3e-2;
constexpr double kLargestIntegerError = 0.1;
constexpr double kLargestFewRowsError = 0.2;  // a row with another expert among its chosen is 3 to 15 % off
constexpr double kLargestDivergence = 1e-3;
constexpr double kLargestIntegerDivergence = 1e-2;
constexpr std::int64_t kAnswerTokens = 24;
constexpr const char* kPrompts[] = {
    "The capital of France is",
    "def add(a, b):\n    return",
    "Once upon a time there was a small",
    "One, two, three, four,",
};

bool is_integer(const BackendOptions& backend) {
  return backend.name == "cpu" && !backend.exact;
}

Result<Check> check_blocks(const BackendOptions& backend) {
  LILY_TRY(const BlockComparison c, compare_with_reference(backend));
  const double bound = is_integer(backend) ? kLargestIntegerError : kLargestBlockError;
  return Check{.name = "blocks",
               .passed = c.worst < bound && c.worst_few < kLargestFewRowsError,
               .found = fmt::format(
                   "{} of {} random models: largest error {:.1e}, bound {:.0e}; of fewer than {} rows "
                   "{:.1e}, bound {:.0e}",
                   c.blocks, c.models, c.worst, bound, kSparingRows, c.worst_few, kLargestFewRowsError)};
}

Result<std::unique_ptr<LoadedModel>> open_tiny(const BackendOptions& backend) {
  ModelOptions options;
  options.backend = backend;
  options.max_seq = 256;
  return LoadedModel::open(options);
}

/// `prompt` and the likeliest tokens after it.
Result<std::vector<TokenId>> continued(LoadedModel& model, const std::vector<TokenId>& prompt) {
  LILY_TRY(Sequence sequence, Sequence::create(model.pool()));
  std::vector<float> logits;
  LILY_TRY_VOID(model.prefill(sequence, prompt, Logits::kLast, logits));
  const auto sampled = std::span(logits).first(static_cast<std::size_t>(model.vocab_end()));
  auto next = static_cast<TokenId>(std::ranges::max_element(sampled) - sampled.begin());
  std::vector<TokenId> tokens = prompt;
  tokens.push_back(next);
  while (tokens.size() < prompt.size() + kAnswerTokens) {
    LILY_TRY_VOID(model.decode_greedy(std::span(&sequence, 1), std::span(&next, 1), logits));
    tokens.push_back(next);
  }
  return tokens;
}

Result<std::vector<float>> all_logits(LoadedModel& model, const std::vector<TokenId>& tokens) {
  LILY_TRY(Sequence sequence, Sequence::create(model.pool()));
  std::vector<float> logits;
  LILY_TRY_VOID(model.prefill(sequence, tokens, Logits::kAll, logits));
  return logits;
}

/// The distance of predictions over the texts that the reference writes, and whether the backend writes them.
struct TextComparison {
  double divergence = 0;  ///< sum over `rows`
  std::int64_t rows = 0;
  std::int64_t agreeing = 0;  ///< with the same likeliest token
  std::int64_t equal_texts = 0;

  void add(std::span<const float> expected, std::span<const float> got, std::size_t vocab) {
    for (std::size_t at = 0; at < expected.size(); at += vocab) {
      const auto p = expected.subspan(at, vocab);
      const auto q = got.subspan(at, vocab);
      divergence += kl_divergence(p, q);
      agreeing += std::ranges::max_element(p) - p.begin() == std::ranges::max_element(q) - q.begin() ? 1 : 0;
      ++rows;
    }
  }
};

Result<TextComparison> compare_texts(LoadedModel& reference, LoadedModel& model) {
  TextComparison c;
  for (const char* text : kPrompts) {
    const std::vector<TokenId> prompt = reference.tokenizer()->encode(text);
    LILY_TRY(const auto expected, continued(reference, prompt));
    LILY_TRY(const auto got, continued(model, prompt));
    c.equal_texts += got == expected ? 1 : 0;
    LILY_TRY(const auto expected_logits, all_logits(reference, expected));
    LILY_TRY(const auto logits, all_logits(model, expected));
    c.add(expected_logits, logits, static_cast<std::size_t>(reference.shapes().vocab));
  }
  return c;
}

Result<std::vector<Check>> check_texts(const BackendOptions& backend) {
  LILY_TRY(const auto reference, open_tiny({.name = "reference"}));
  LILY_TRY(const auto model, open_tiny(backend));
  LILY_TRY(const TextComparison c, compare_texts(*reference, *model));
  const double divergence = c.divergence / static_cast<double>(c.rows);
  const double agreement = static_cast<double>(c.agreeing) / static_cast<double>(c.rows);
  const bool integers = is_integer(backend);
  const double bound = integers ? kLargestIntegerDivergence : kLargestDivergence;
  const auto prompts = static_cast<std::int64_t>(std::size(kPrompts));
  return std::vector<Check>{
      {.name = "predictions",
       .passed = divergence < bound && agreement > (integers ? 0.95 : 0.99),
       .found = fmt::format("{} tokens of the tiny model: mean KL {:.1e}, bound {:.0e}; top-1 {:.2f} %",
                            c.rows, divergence, bound, 100 * agreement)},
      {.name = "greedy texts",
       .passed = integers || c.equal_texts == prompts,
       .found =
           fmt::format("{} of {} of {} tokens are the reference's", c.equal_texts, prompts, kAnswerTokens)}};
}

}  // namespace

Result<void> run_selftest(const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  BackendOptions backend = model_options(options).backend;
  const RandomModel model({});
  LILY_TRY(const auto made, make_for_trial(model, backend));
  const std::string description = made->description();
  if (backend.name == "auto") backend.name = description.substr(0, description.find(' '));
  LILY_TRY_VOID(
      console::print(fmt::format("version  {}{}{}\n{}backend  {}\n\n", version(), commit().empty() ? "" : " ",
                                 commit(), machine_text(this_machine()), description)));
  std::vector<Check> checks;
  LILY_TRY(checks.emplace_back(), check_blocks(backend));
  LILY_TRY(auto texts, check_texts(backend));
  checks.insert(checks.end(), texts.begin(), texts.end());
  std::size_t failed = 0;
  for (const Check& check : checks) {
    LILY_TRY_VOID(console::print(
        fmt::format("{:<8}{:<14}{}\n", check.passed ? "ok" : "FAILED", check.name, check.found)));
    failed += check.passed ? 0 : 1;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  LILY_TRY_VOID(console::print(fmt::format("\n{:.1f} s\n", seconds.count())));
  if (failed > 0)
    return fail(ErrorCode::kInternal, "selftest: {} of {} checks failed", failed, checks.size());
  return {};
}

}  // namespace lily
