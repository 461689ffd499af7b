// Random sessions of coding agents (turns appended, edited, regenerated, shortened, branched, cancelled,
// several at once) through an engine whose cache is too small for them: every answer's log-probabilities are
// those of a cold run, bit for bit where the cold run is cut in the same places, within rounding from
// nothing.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "engine/engine.h"
#include "tests/checkpoint/test_checkpoint.h"
#include "tests/engine/cold_run.h"
#include "tests/sanitized.h"
#include "tests/text/small_tokenizer.h"

namespace lily::testing {
namespace {

using Tokens = std::vector<TokenId>;

constexpr std::int64_t kMaxSeq = 1024;
constexpr int kSlots = 3;
constexpr std::int64_t kSessions = test::kThreadSanitizer ? 24 : 200;

std::int64_t from_environment(const char* name, std::int64_t fallback) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoll(text) : fallback;
}

/// A checkpoint whose tokenizer has <|im_start|>.
void write_checkpoint(const TempDir& folder) {
  TestCheckpoint(1024, kMaxSeq).write(folder.path());
  write_bytes(folder.path() / "tokenizer.json", test::small_tokenizer_json().dump());
}

ModelOptions model_options(const TempDir& folder, bool exact) {
  ModelOptions options;
  options.model = folder.string();
  options.backend = {.name = "cpu", .exact = exact, .threads = 1, .isa = "auto"};
  options.max_seq = kMaxSeq;
  options.max_rows = 256;
  return options;
}

/// One client's conversation and how it goes on.
class Session {
 public:
  Session(std::mt19937& rng, Tokens system) : rng_(&rng), history_(std::move(system)) {}

  /// The prompt of the next turn, after whatever this client does to its history.
  Tokens next_prompt() {
    switch (below(8)) {
      case 0:  // the same again
        if (!last_prompt_.empty()) return last_prompt_;
        break;
      case 1:  // an edit in the middle
        if (history_.size() > 80) history_[40 + below(history_.size() - 40)] = text();
        break;
      case 2:  // shortened
        history_.resize(history_.size() - below(std::min<std::size_t>(history_.size() / 2, 100)));
        break;
      default:
        break;
    }
    if (history_.size() > kMaxSeq / 2) history_.resize(below(kMaxSeq / 4));
    add_message(1 + below(below(3) == 0 ? 250 : 40));
    last_prompt_ = history_;
    last_prompt_.push_back(test::kImStart);
    for (std::size_t i = 0; i < 3; ++i) last_prompt_.push_back(static_cast<TokenId>(i));
    return last_prompt_;
  }

  /// The answer came; the client may render it without its first part, as reasoning is.
  void answered(const Answered& answer) {
    history_ = answer.prompt;
    const std::size_t skip = below(3) == 0 ? answer.tokens.size() / 2 : 0;
    for (std::size_t i = skip; i < answer.tokens.size(); ++i) history_.push_back(answer.tokens[i].id);
    history_.push_back(test::kImEnd);
  }

  [[nodiscard]] const Tokens& history() const { return history_; }
  std::size_t below(std::size_t n) {
    return n == 0 ? 0 : std::uniform_int_distribution<std::size_t>(0, n - 1)(*rng_);
  }

 private:
  TokenId text() { return static_cast<TokenId>(below(256)); }
  void add_message(std::size_t length) {
    history_.push_back(test::kImStart);
    for (std::size_t i = 0; i < length; ++i) history_.push_back(text());
    history_.push_back(test::kImEnd);
  }

  std::mt19937* rng_;
  Tokens history_;
  Tokens last_prompt_;
};

class SessionTest : public ::testing::TestWithParam<bool> {
 protected:
  SessionTest() : rng_(static_cast<std::uint32_t>(from_environment("LILY_SEED", 1))) {
    write_checkpoint(folder_);
    const bool exact = GetParam();
    auto judge = LoadedModel::open(model_options(folder_, exact));
    LILY_CHECK(judge.ok(), "{}", judge.error().message);
    judge_ = std::move(judge).value();
    EngineOptions options{.model = model_options(folder_, exact), .max_queue = 64};
    options.model.slots = kSlots;
    // Room for two dozen checkpoints, and not for every running sequence at its longest.
    options.model.cache_bytes = 32 * judge_->backend().slot_bytes();
    options.model.kv_tokens = kMaxSeq;
    auto engine = Engine::open(options);
    LILY_CHECK(engine.ok(), "{}", engine.error().message);
    engine_ = std::move(engine).value();
    for (std::size_t length = 150; auto& system : systems_) {
      system = {test::kImStart};
      length += 100;
      for (std::size_t i = 0; i < length; ++i) {
        system.push_back(static_cast<TokenId>(rng_() % 256));
      }
      system.push_back(test::kImEnd);
    }
  }

  Session fresh_session() { return {rng_, systems_[rng_() % systems_.size()]}; }

  struct Running {
    std::size_t session = 0;
    Tokens prompt;
    std::shared_ptr<Generation> generation;
    std::size_t cancel_after = SIZE_MAX;
  };

  // Up to kSlots + 1 sessions submit a turn each before any of them is looked at.
  void play_round(std::vector<Session>& sessions) {
    std::vector<Running> round;
    const std::size_t count = 1 + rng_() % std::min<std::size_t>(kSlots + 1, sessions.size());
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t index = (first_ + i) % sessions.size();
      Running running{index, sessions[index].next_prompt(), nullptr};
      running.generation = submit(running.prompt);
      if (rng_() % 6 == 0) running.cancel_after = rng_() % 6;
      if (running.cancel_after == 0) running.generation->cancel();
      round.push_back(std::move(running));
    }
    first_ += count;
    // Those submitted first are admitted first, so what a later one resumes from is known when it is judged.
    for (const Running& running : round) {
      const Answered answer = collect(running);
      judge(answer, running.generation->finish_reason());
      sessions[running.session].answered(answer);
    }
  }

  std::shared_ptr<Generation> submit(const Tokens& prompt) {
    GenerateRequest request;
    request.prompt = prompt;
    request.max_tokens = 1 + static_cast<std::int64_t>(rng_() % 12);
    request.sampling.seed = rng_();
    request.logprobs = true;
    request.top_logprobs = 20;
    request.ignore_eos = true;
    return engine_->submit(std::move(request)).value();
  }

  static Answered collect(const Running& running) {
    Answered answer{running.prompt, {}, 0};
    while (auto token = running.generation->next()) {
      answer.tokens.push_back(std::move(*token));
      if (answer.tokens.size() == running.cancel_after) running.generation->cancel();
    }
    answer.cached = running.generation->usage().cached_tokens;
    return answer;
  }

  void judge(const Answered& answer, FinishReason reason) {
    if (reason == FinishReason::kError) {
      ++errors_;  // no KV page was left; nothing of it is kept
      return;
    }
    ++answers_;
    ASSERT_LT(answer.cached, std::ssize(answer.prompt));
    if (answer.cached > 0) ++hits_;
    const auto prefix = std::span(answer.prompt).first(static_cast<std::size_t>(answer.cached));
    std::optional<Recipe> recipe;
    float nearest = INFINITY;
    for (const Recipe& candidate : memory_.recipes(prefix)) {
      const float difference = cold_difference(*judge_, answer, candidate);
      nearest = std::min(nearest, difference);
      if (difference == 0) recipe = candidate;
    }
    if (answer.cached == 0) {
      recipe = Recipe();
      nearest = cold_difference(*judge_, answer, {});
    }
    ASSERT_EQ(nearest, 0) << "prompt of " << answer.prompt.size() << " tokens, " << answer.cached
                          << " cached";
    if (GetParam()) {
      worst_from_nothing_ = std::max(worst_from_nothing_, cold_difference(*judge_, answer, {}));
    }
    remember(answer, *recipe);
  }

  void remember(const Answered& answer, Recipe recipe) {
    Tokens evaluated = answer.prompt;
    append(recipe, {std::ssize(evaluated), Phase::kPrefill});
    for (std::size_t i = 0; i + 1 < answer.tokens.size(); ++i) evaluated.push_back(answer.tokens[i].id);
    append(recipe, {std::ssize(evaluated), Phase::kDecode});
    memory_.add(std::move(evaluated), std::move(recipe));
  }

  TempDir folder_;
  std::mt19937 rng_;
  std::unique_ptr<LoadedModel> judge_;
  std::unique_ptr<Engine> engine_;
  std::array<Tokens, 3> systems_;
  Memory memory_;
  std::size_t first_ = 0;
  int answers_ = 0;
  int hits_ = 0;
  int errors_ = 0;
  float worst_from_nothing_ = 0;
};

TEST_P(SessionTest, EveryAnswerIsThatOfAColdRun) {
  // The exact mode is slow: an eighth, but enough to fill the cache.
  const auto wanted = from_environment("LILY_SESSIONS", kSessions);
  const auto total = GetParam() ? std::max<std::int64_t>(wanted / 8, 20) : wanted;
  std::vector<Session> sessions;
  for (std::int64_t started = 0; started < total && !HasFatalFailure();) {
    while (sessions.size() < 6 && started < total) {
      const bool branch = !sessions.empty() && rng_() % 4 == 0;
      sessions.push_back(branch ? sessions[rng_() % sessions.size()] : fresh_session());
      ++started;
    }
    play_round(sessions);
    sessions.erase(sessions.begin() + static_cast<std::ptrdiff_t>(rng_() % sessions.size()));
  }
  const auto cache = engine_->stats().cache;
  printf(
      "%d answers, %d from the cache (%ld of %ld tokens), %ld evictions, %d without KV pages, "
      "largest difference from nothing %g\n",
      answers_, hits_, cache.hit_tokens, engine_->stats().work.prompt_tokens + cache.hit_tokens,
      cache.evicted, errors_, worst_from_nothing_);
  EXPECT_GT(hits_, answers_ / 3);
  EXPECT_GT(cache.evicted, 0);
  EXPECT_LE(cache.bytes, cache.budget);
  EXPECT_LT(errors_, answers_ / 10);
  if (GetParam()) {
    EXPECT_LT(worst_from_nothing_, 1e-3F);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, SessionTest, ::testing::Values(false, true),
                         [](const auto& exact) { return exact.param ? "exact" : "integer"; });

}  // namespace
}  // namespace lily::testing
