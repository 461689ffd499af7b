#include "engine/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace lily {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::unique_ptr<Engine> open(std::int64_t slots = 1, std::int64_t max_seq = 1024,
                             std::int64_t max_queue = 64) {
  EngineOptions options;
  options.model.backend = {.name = "cpu", .exact = false, .threads = 2, .isa = "auto"};
  options.model.max_seq = max_seq;
  options.model.slots = slots;
  options.model.max_rows = 128;
  options.max_queue = max_queue;
  auto engine = Engine::open(options);
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().message);
  return engine.ok() ? std::move(engine).value() : nullptr;
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
