#include "engine/cache_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "tests/checkpoint/test_checkpoint.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

class CacheFileTest : public ::testing::Test {
 protected:
  CacheFileTest() {
    fs::create_directories(model());
    testing::TestCheckpoint().write(model());
  }

  [[nodiscard]] fs::path model() const { return folder_.path() / "model"; }
  [[nodiscard]] fs::path file() const { return folder_.path() / "cache"; }
  [[nodiscard]] fs::path refused() const { return folder_.path() / "cache.refused"; }

  [[nodiscard]] EngineOptions options(std::int64_t cache_bytes = 64 << 20) const {
    EngineOptions options;
    options.model.model = model().string();
    options.model.backend = {.name = "cpu", .exact = false, .threads = 1, .isa = "auto"};
    options.model.max_seq = 1024;
    options.model.cache_bytes = cache_bytes;
    options.cache_file = file();
    return options;
  }

  static std::unique_ptr<Engine> open(const EngineOptions& options) {
    auto engine = Engine::open(options);
    LILY_CHECK(engine.ok(), "{}", engine.error().message);
    return std::move(engine).value();
  }

  struct Answer {
    std::vector<float> logprobs;
    std::int64_t cached = 0;
  };
  static Answer ask(Engine& engine, TokenId first, std::size_t length = 300) {
    GenerateRequest request;
    for (std::size_t i = 0; i < length; ++i)
      request.prompt.push_back((first + static_cast<TokenId>(i) * 7) % 90);
    request.sampling.temperature = 0;
    request.max_tokens = 5;
    request.ignore_eos = true;
    request.logprobs = true;
    const auto generation = engine.submit(std::move(request)).value();
    Answer answer;
    while (const auto token = generation->next()) answer.logprobs.push_back(token->logprob);
    answer.cached = generation->usage().cached_tokens;
    return answer;
  }

  // A file with three conversations in it.
  void save_three() {
    const auto engine = open(options());
    for (const TokenId first : {1, 2, 3}) ask(*engine, first);
    const auto saved = engine->save_cache();
    ASSERT_TRUE(saved.ok()) << saved.error().message;
  }

  testing::TempDir folder_;
};

TEST_F(CacheFileTest, AnswersAreTheSameAfterARestart) {
  Answer before;
  PrefixCache::Stats stats;
  {
    const auto engine = open(options());
    ask(*engine, 1);
    ask(*engine, 2, 700);
    before = ask(*engine, 1);
    ASSERT_TRUE(engine->save_cache().ok());
    stats = engine->stats().cache;
  }
  EXPECT_EQ(fs::status(file()).permissions() & fs::perms::all,
            fs::perms::owner_read | fs::perms::owner_write);
  const auto engine = open(options());
  EXPECT_EQ(engine->stats().cache.checkpoints, stats.checkpoints);
  EXPECT_EQ(engine->stats().cache.bytes, stats.bytes) << "shared pages stay shared";
  const Answer after = ask(*engine, 1);
  EXPECT_EQ(after.cached, before.cached);
  EXPECT_GE(after.cached, 256);
  EXPECT_EQ(after.logprobs, before.logprobs);
}

TEST_F(CacheFileTest, NoFileIsAnEmptyCache) {
  EXPECT_EQ(open(options())->stats().cache.checkpoints, 0);
  EXPECT_FALSE(fs::exists(refused()));
}

TEST_F(CacheFileTest, AnEmptyCacheIsAFileToo) {
  ASSERT_TRUE(open(options())->save_cache().ok());
  EXPECT_EQ(open(options())->stats().cache.checkpoints, 0);
  EXPECT_FALSE(fs::exists(refused()));
}

TEST_F(CacheFileTest, ASmallerBudgetTakesTheLatest) {
  save_three();
  const auto all = open(options());
  const auto small = open(options(all->stats().cache.bytes / 2));
  EXPECT_GT(small->stats().cache.checkpoints, 0);
  EXPECT_LE(small->stats().cache.bytes, small->stats().cache.budget);
  EXPECT_GT(ask(*small, 3).cached, 0);
  EXPECT_EQ(ask(*small, 1).cached, 0);
}

TEST_F(CacheFileTest, RefusesTheFileOfOtherWeights) {
  save_three();
  testing::TestCheckpoint other;
  other.tensor(testing::in_model("norm.weight")).bytes[0] ^= 1;
  other.write(model());
  const auto engine = open(options());
  EXPECT_EQ(engine->stats().cache.checkpoints, 0);
  EXPECT_FALSE(fs::exists(file()));
  EXPECT_TRUE(fs::exists(refused()));
  EXPECT_EQ(ask(*engine, 1).cached, 0);
}

TEST_F(CacheFileTest, RefusesTheFileOfAnotherBackend) {
  save_three();
  auto exact = options();
  exact.model.backend.exact = true;
  EXPECT_EQ(open(exact)->stats().cache.checkpoints, 0);
  EXPECT_TRUE(fs::exists(refused()));
}

// Every part of the file: one bit turned, one byte less, one more.
TEST_F(CacheFileTest, RefusesWhateverIsDamaged) {
  save_three();
  const std::string good = testing::read_bytes(file());
  auto opened = LoadedModel::open(options().model).value();
  const auto identity = CacheIdentity::of(*opened);
  const auto parse = [&](const std::string& bytes) {
    return CacheFile::parse(std::as_bytes(std::span(bytes)), identity, opened->shapes().vocab);
  };
  ASSERT_TRUE(parse(good).ok());
  for (std::size_t at = 0; at < good.size(); at += at < 6000 ? 1 : 99'991) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
    ASSERT_FALSE(parse(bad).ok()) << "bit " << at % 8 << " of byte " << at;
  }
  for (std::size_t size = 0; size < good.size(); size += size < 6000 ? 1 : 499'979) {
    ASSERT_FALSE(parse(good.substr(0, size)).ok()) << size << " bytes";
  }
  EXPECT_FALSE(parse(good + '\0').ok());
  EXPECT_EQ(parse("").error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(parse(std::string(100, 'x')).error().message, ::testing::HasSubstr("not a prefix cache"));
}

TEST_F(CacheFileTest, SaysWhatCannotBeWritten) {
  auto nowhere = options();
  nowhere.cache_file = folder_.path() / "missing" / "cache";
  const auto saved = open(nowhere)->save_cache();
  ASSERT_FALSE(saved.ok());
  EXPECT_THAT(saved.error().message, ::testing::HasSubstr("missing"));
}

}  // namespace
}  // namespace lily
