#include "engine/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace lily {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

EngineOptions options_of(std::int64_t slots, std::int64_t max_seq, std::int64_t max_queue) {
  EngineOptions options;
  options.model.backend = {.name = "cpu", .exact = false, .threads = 2, .isa = "auto"};
  options.model.max_seq = max_seq;
  options.model.slots = slots;
  options.model.max_rows = 128;
  options.max_queue = max_queue;
  return options;
}

std::unique_ptr<Engine> open(const EngineOptions& options) {
  auto engine = Engine::open(options);
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().message);
  return engine.ok() ? std::move(engine).value() : nullptr;
}

std::unique_ptr<Engine> open(std::int64_t slots = 1, std::int64_t max_seq = 1024,
                             std::int64_t max_queue = 64) {
  return open(options_of(slots, max_seq, max_queue));
}

GenerateRequest request(std::size_t prompt, std::int64_t max_tokens, TokenId first = 3) {
  GenerateRequest r;
  for (std::size_t i = 0; i < prompt; ++i) r.prompt.push_back((first + static_cast<TokenId>(i) * 13) % 500);
  r.sampling.temperature = 0;
  r.max_tokens = max_tokens;
  r.ignore_eos = true;
  return r;
}

std::vector<TokenId> drain(Generation& generation) {
  std::vector<TokenId> ids;
  while (const auto token = generation.next()) ids.push_back(token->id);
  return ids;
}

TEST(Engine, GeneratesAsManyTokensAsAsked) {
  const auto engine = open();
  ASSERT_NE(engine, nullptr);
  const auto generation = engine->submit(request(20, 12)).value();
  EXPECT_EQ(drain(*generation).size(), 12U);
  EXPECT_TRUE(generation->finished());
  EXPECT_EQ(generation->finish_reason(), FinishReason::kLength);
  EXPECT_EQ(generation->usage().prompt_tokens, 20);
  EXPECT_EQ(generation->usage().completion_tokens, 12);
}

TEST(Engine, RefusesWhatCannotRun) {
  const auto engine = open(1, 256);
  ASSERT_NE(engine, nullptr);
  const auto empty = engine->submit(request(0, 5));
  ASSERT_FALSE(empty.ok());
  EXPECT_EQ(empty.error().code, ErrorCode::kInvalidArgument);
  const auto long_prompt = engine->submit(request(257, 5));
  ASSERT_FALSE(long_prompt.ok());
  EXPECT_NE(long_prompt.error().message.find("257"), std::string::npos);
  EXPECT_NE(long_prompt.error().message.find("256"), std::string::npos);
  auto bad = request(3, 5);
  bad.prompt[1] = 100'000'000;
  EXPECT_FALSE(engine->submit(bad).ok());
  bad.prompt[1] = -1;
  EXPECT_FALSE(engine->submit(bad).ok());
}

// Prompts around the context's size: what fits generates what is left of the room and says "length".
TEST(Engine, FillsTheContextAndNeverCutsThePrompt) {
  const auto engine = open(1, 256);
  ASSERT_NE(engine, nullptr);
  for (const auto& [prompt, expected] : {std::pair{200, 56}, {255, 1}, {256, 0}}) {
    const auto generation = engine->submit(request(static_cast<std::size_t>(prompt), 100)).value();
    EXPECT_EQ(drain(*generation).size(), static_cast<std::size_t>(expected));
    EXPECT_EQ(generation->finish_reason(), FinishReason::kLength);
  }
  EXPECT_EQ(drain(*engine->submit(request(10, 3)).value()).size(), 3U);
}

TEST(Engine, StopsAtAnEosIdWithoutShowingIt) {
  const auto engine = open();
  ASSERT_NE(engine, nullptr);
  auto r = request(20, 50);
  const auto eos = engine->model().eos().front();
  r.sampling.logit_bias[eos] = 1000;
  r.ignore_eos = false;
  const auto generation = engine->submit(r).value();
  EXPECT_TRUE(drain(*generation).empty());
  EXPECT_EQ(generation->finish_reason(), FinishReason::kStop);
  EXPECT_EQ(generation->usage().completion_tokens, 1);
}

TEST(Engine, TheSameRequestGivesTheSameTokensAloneAndInCompany) {
  const auto engine = open(4);
  ASSERT_NE(engine, nullptr);
  std::vector<std::vector<TokenId>> alone;
  for (TokenId first : {3, 50, 120, 333}) {
    alone.push_back(
        drain(*engine->submit(request(100 + static_cast<std::size_t>(first), 40, first)).value()));
  }
  std::vector<std::shared_ptr<Generation>> together;
  for (TokenId first : {3, 50, 120, 333}) {
    together.push_back(engine->submit(request(100 + static_cast<std::size_t>(first), 40, first)).value());
  }
  for (std::size_t i = 0; i < together.size(); ++i) EXPECT_EQ(drain(*together[i]), alone[i]) << i;
}

TEST(Engine, CancelEndsARunningGenerationAndFreesItsPlace) {
  const auto engine = open();
  ASSERT_NE(engine, nullptr);
  const auto first = engine->submit(request(20, 100'000)).value();
  ASSERT_TRUE(first->next().has_value());
  const auto waiting = engine->submit(request(20, 4)).value();
  first->cancel();
  EXPECT_EQ(drain(*waiting).size(), 4U);
  drain(*first);
  EXPECT_EQ(first->finish_reason(), FinishReason::kCancelled);
}

TEST(Engine, LettingGoOfTheHandleCancels) {
  const auto engine = open();
  ASSERT_NE(engine, nullptr);
  engine->submit(request(20, 100'000)).value().reset();
  EXPECT_EQ(drain(*engine->submit(request(20, 4)).value()).size(), 4U);
  engine->drain(seconds(60));
  EXPECT_EQ(engine->stats().running, 0);
  EXPECT_EQ(engine->stats().finished, 2);
}

TEST(Engine, AFullQueueIsSaidAndNothingIsLost) {
  const auto engine = open(1, 1024, 2);
  ASSERT_NE(engine, nullptr);
  const auto running = engine->submit(request(20, 100'000)).value();
  ASSERT_TRUE(running->next().has_value());  // it has left the queue
  const auto a = engine->submit(request(5, 2)).value();
  const auto b = engine->submit(request(5, 2)).value();
  const auto refused = engine->submit(request(5, 2));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  running->cancel();
  EXPECT_EQ(drain(*a).size(), 2U);
  EXPECT_EQ(drain(*b).size(), 2U);
}

TEST(Engine, AbandonedRequestsGiveUpTheirPlacesInTheQueue) {
  const auto engine = open(1, 1024, 2);
  ASSERT_NE(engine, nullptr);
  const auto running = engine->submit(request(20, 100'000)).value();
  ASSERT_TRUE(running->next().has_value());
  const auto cancelled = engine->submit(request(5, 2)).value();
  engine->submit(request(5, 2)).value().reset();
  cancelled->cancel();
  const auto a = engine->submit(request(5, 2));
  const auto b = engine->submit(request(5, 2));
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_FALSE(engine->submit(request(5, 2)).ok());
  EXPECT_TRUE(drain(*cancelled).empty());
  EXPECT_EQ(cancelled->finish_reason(), FinishReason::kCancelled);
  running->cancel();
  EXPECT_EQ(drain(**a).size(), 2U);
  EXPECT_EQ(drain(**b).size(), 2U);
}

// Without a stop on the grid, an answer's end is the only checkpoint behind such a prompt.
TEST(Engine, TheNextTurnResumesAtTheEndOfTheAnswer) {
  auto options = options_of(1, 1024, 64);
  options.model.cache_bytes = 64 << 20;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  auto turn = request(100, 10);
  const auto answer = drain(*engine->submit(turn).value());
  turn.prompt.insert(turn.prompt.end(), answer.begin(), answer.end());
  turn.prompt.push_back(7);
  const auto next = engine->submit(turn).value();
  EXPECT_EQ(drain(*next).size(), 10U);
  EXPECT_EQ(next->usage().cached_tokens, 109);  // the tenth token was sampled and never evaluated
  EXPECT_EQ(engine->stats().cache.hits, 1);
  EXPECT_EQ(engine->stats().work.prompt_tokens, 100 + 2);
}

TEST(Engine, ACancelledRequestLeavesWhatItComputed) {
  auto options = options_of(1, 2048, 64);
  options.model.cache_bytes = 64 << 20;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  const auto reading = engine->submit(request(2000, 5)).value();
  while (reading->prefilled() < 256) std::this_thread::yield();
  reading->cancel();
  EXPECT_TRUE(drain(*reading).empty());
  const auto again = engine->submit(request(2000, 1)).value();
  drain(*again);
  EXPECT_GE(again->usage().cached_tokens, 256);
}

// A long prompt does not keep a short one waiting, and an answer goes on beside both.
TEST(Engine, PromptsAreReadInTurns) {
  const auto engine = open(3, 4096);
  ASSERT_NE(engine, nullptr);
  const auto answering = engine->submit(request(10, 100'000)).value();
  ASSERT_TRUE(answering->next().has_value());
  const auto book = engine->submit(request(4000, 5)).value();
  while (book->prefilled() == 0) std::this_thread::yield();
  const auto note = engine->submit(request(200, 2)).value();
  EXPECT_EQ(drain(*note).size(), 2U);
  EXPECT_FALSE(book->finished());
  EXPECT_LT(book->prefilled(), 4000);
  book->cancel();
  answering->cancel();
  EXPECT_GE(drain(*answering).size(), 2U);
}

TEST(Engine, DeadlinesEndWhatRunsAndWhatWaits) {
  auto options = options_of(1, 8192, 64);
  options.timeout = milliseconds(300);
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  const auto running = engine->submit(request(20, 100'000)).value();
  auto hurried = request(20, 5);
  hurried.timeout = milliseconds(1);
  const auto waiting = engine->submit(hurried).value();
  EXPECT_TRUE(drain(*waiting).empty());
  EXPECT_EQ(waiting->finish_reason(), FinishReason::kTimeout);
  drain(*running);
  EXPECT_EQ(running->finish_reason(), FinishReason::kTimeout);
}

// Pages for one sequence at its longest, and three that want to be that long.
TEST(Engine, WithoutFreePagesRequestsWaitAndTheShortestFailsWhenAllDo) {
  auto options = options_of(3, 768, 64);
  options.model.kv_tokens = 768;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  std::vector<std::vector<TokenId>> alone;
  for (TokenId first : {3, 50, 120})
    alone.push_back(drain(*engine->submit(request(200, 100, first)).value()));
  std::vector<std::shared_ptr<Generation>> together;
  for (TokenId first : {3, 50, 120}) together.push_back(engine->submit(request(200, 100, first)).value());
  int whole = 0;
  for (std::size_t i = 0; i < together.size(); ++i) {
    auto tokens = drain(*together[i]);
    if (together[i]->finish_reason() == FinishReason::kError) {
      EXPECT_EQ(together[i]->error().code, ErrorCode::kExhausted);
      EXPECT_NE(together[i]->error().message.find("KV pages"), std::string::npos);
    } else {
      ++whole;
    }
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), alone[i].begin())) << "never other tokens";
  }
  EXPECT_GE(whole, 1);
  EXPECT_LT(whole, 3);
  engine->drain(seconds(60));
  EXPECT_EQ(engine->stats().free_kv_pages, engine->stats().kv_pages);
}

TEST(Engine, RunningRequestsTakeTheirPagesFromTheCache) {
  auto options = options_of(1, 1024, 64);
  options.model.cache_bytes = 8 << 20;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  for (TokenId first = 1; first < 10; ++first) {
    EXPECT_EQ(drain(*engine->submit(request(500, 3, first)).value()).size(), 3U);
    EXPECT_LE(engine->stats().cache.bytes, engine->stats().cache.budget);
  }
  EXPECT_GT(engine->stats().cache.evicted, 0);
}

TEST(Engine, DrainFinishesWhatRunsAndRefusesTheRest) {
  const auto engine = open();
  ASSERT_NE(engine, nullptr);
  const auto running = engine->submit(request(20, 30)).value();
  std::thread drainer([&] { engine->drain(seconds(60)); });
  EXPECT_EQ(drain(*running).size(), 30U);
  drainer.join();
  EXPECT_FALSE(engine->submit(request(5, 2)).ok());
}

TEST(Engine, DrainCancelsAtItsDeadline) {
  const auto engine = open(1, 4096);
  ASSERT_NE(engine, nullptr);
  const auto running = engine->submit(request(20, 100'000)).value();
  ASSERT_TRUE(running->next().has_value());
  engine->drain(milliseconds(1));
  drain(*running);
  EXPECT_EQ(running->finish_reason(), FinishReason::kCancelled);
}

TEST(Engine, DestructionEndsEverything) {
  auto engine = open();
  ASSERT_NE(engine, nullptr);
  const auto running = engine->submit(request(20, 100'000)).value();
  const auto queued = engine->submit(request(20, 100'000)).value();
  engine.reset();
  drain(*running);
  drain(*queued);
  EXPECT_EQ(running->finish_reason(), FinishReason::kCancelled);
  EXPECT_EQ(queued->finish_reason(), FinishReason::kCancelled);
}

TEST(Engine, WaitingWithATimeoutDoesNotFinish) {
  const auto engine = open();
  ASSERT_NE(engine, nullptr);
  const auto blocker = engine->submit(request(20, 100'000)).value();
  const auto queued = engine->submit(request(20, 2)).value();
  EXPECT_FALSE(queued->next_for(milliseconds(20)).has_value());
  EXPECT_FALSE(queued->finished());
  blocker->cancel();
  EXPECT_EQ(drain(*queued).size(), 2U);
}

}  // namespace
}  // namespace lily
