#include "engine/prefix_cache.h"

#include <gtest/gtest.h>

#include "engine/loaded_model.h"
#include "tests/checkpoint/test_checkpoint.h"

namespace lily {
namespace {

using Tokens = std::vector<TokenId>;

// Sequences that hold no computed state: the tree and the account of memory are looked at, not the numbers.
class PrefixCacheTest : public ::testing::Test {
 protected:
  PrefixCacheTest() {
    testing::TestCheckpoint().write(folder_.path());
    ModelOptions options;
    options.model = folder_.string();
    options.backend = {.name = "cpu", .exact = false, .threads = 1, .isa = "auto"};
    options.max_seq = 1024;
    options.cache_bytes = 64 << 20;  // more than the caches below may use
    auto opened = LoadedModel::open(options);
    LILY_CHECK(opened.ok(), "{}", opened.error().message);
    model_ = std::move(opened).value();
    make_cache(16 << 20);
  }

  void make_cache(std::int64_t budget) {
    cache_.reset();
    cache_ = std::make_unique<PrefixCache>(model_->pool(), budget);
  }

  Sequence sequence(const Tokens& tokens) {
    auto made = Sequence::create(model_->pool());
    while (!made.ok() && cache_->evict()) made = Sequence::create(model_->pool());
    if (tokens.empty()) return std::move(*made);
    while (!made->extend(tokens, Phase::kPrefill, Logits::kNone).ok()) {
      LILY_CHECK(cache_->evict(), "no room for {} tokens", tokens.size());
    }
    made->advance();
    return std::move(*made);
  }

  void insert(const Tokens& tokens) { cache_->insert(tokens, sequence(tokens)); }
  // What a request for `prompt` finds: tokens of the checkpoint, and tokens in common.
  std::pair<std::int64_t, std::int64_t> find(const Tokens& prompt) {
    auto match = cache_->resume(prompt).value();
    return {match.sequence ? match.sequence->length() : 0, match.shared};
  }

  std::int64_t slot() { return model_->backend().slot_bytes(); }
  std::int64_t page() { return model_->backend().page_bytes(); }

  testing::TempDir folder_;
  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<PrefixCache> cache_;
};

Tokens run(TokenId value, std::size_t count) {
  return Tokens(count, value);
}
Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_F(PrefixCacheTest, FindsTheLongestBeginningThatLeavesATokenToEvaluate) {
  insert({1, 2, 3});
  insert({1, 2, 3, 4, 5});
  EXPECT_EQ(find({1, 2, 3, 4, 5, 6}), std::pair(5L, 5L));
  EXPECT_EQ(find({1, 2, 3, 4, 5}), std::pair(3L, 5L));
  EXPECT_EQ(find({1, 2, 3, 4, 9, 9}), std::pair(3L, 4L));
  EXPECT_EQ(find({1, 2, 3}), std::pair(0L, 3L));
  EXPECT_EQ(find({1, 2, 9}), std::pair(0L, 2L));
  EXPECT_EQ(find({7}), std::pair(0L, 0L));
  EXPECT_EQ(find({}), std::pair(0L, 0L));
  EXPECT_EQ(cache_->stats().hits, 3);
  EXPECT_EQ(cache_->stats().hit_tokens, 5 + 3 + 3);
  EXPECT_EQ(cache_->stats().lookups, 7);
}

TEST_F(PrefixCacheTest, BranchesShareTheirBeginning) {
  insert({1, 2, 3, 4});
  insert({1, 2, 8, 9});
  insert({1, 2});
  insert({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(find({1, 2, 3, 4, 0}), std::pair(4L, 4L));
  EXPECT_EQ(find({1, 2, 8, 9, 0}), std::pair(4L, 4L));
  EXPECT_EQ(find({1, 2, 8, 0}), std::pair(2L, 3L));
  EXPECT_EQ(find({1, 2, 3, 4, 5, 0}), std::pair(4L, 5L));
  ASSERT_EQ(cache_->entries().size(), 4U);
  for (const auto& entry : cache_->entries()) {
    EXPECT_EQ(std::ssize(entry.tokens), entry.sequence->length());
    EXPECT_EQ(find(entry.tokens + Tokens{0}).first, entry.sequence->length());
  }
}

TEST_F(PrefixCacheTest, WhatStandsStays) {
  insert({1, 2, 3});
  insert({1, 2, 3});
  EXPECT_EQ(cache_->stats().checkpoints, 1);
  EXPECT_EQ(cache_->stats().inserted, 1);
}

TEST_F(PrefixCacheTest, CountsSharedPagesOnce) {
  const auto free_pages = model_->pool().free_pages();
  auto growing = sequence(run(1, 512));
  cache_->keep(run(1, 512), growing);
  EXPECT_EQ(cache_->stats().bytes, slot() + 2 * page());
  ASSERT_TRUE(growing.extend(run(2, 100), Phase::kPrefill, Logits::kNone).ok());
  growing.advance();
  cache_->keep(run(1, 512) + run(2, 100), growing);
  EXPECT_EQ(cache_->stats().bytes, 2 * slot() + 3 * page());
  growing = sequence({});
  EXPECT_EQ(model_->pool().free_pages(), free_pages - 3);
  EXPECT_TRUE(cache_->evict());
  EXPECT_EQ(cache_->stats().bytes, slot() + 2 * page());
  EXPECT_TRUE(cache_->evict());
  EXPECT_FALSE(cache_->evict());
  EXPECT_EQ(cache_->stats().bytes, 0);
  EXPECT_EQ(cache_->stats().evicted, 2);
  EXPECT_EQ(model_->pool().free_pages(), free_pages);
}

TEST_F(PrefixCacheTest, StaysWithinItsBudget) {
  make_cache(3 * (slot() + page()));
  for (TokenId t = 0; t < 20; ++t) {
    insert(run(t, 70));
    EXPECT_LE(cache_->stats().bytes, cache_->stats().budget);
  }
  EXPECT_EQ(cache_->stats().checkpoints, 3);
  EXPECT_EQ(find(run(19, 71)).first, 70);
  EXPECT_EQ(find(run(16, 71)).first, 0);
}

TEST_F(PrefixCacheTest, WhatIsLargerThanTheBudgetIsNotKept) {
  make_cache(slot());
  insert(run(1, 70));
  EXPECT_EQ(cache_->stats().checkpoints, 0);
  make_cache(0);
  insert(run(1, 70));
  cache_->keep(run(1, 70), sequence(run(1, 70)));
  EXPECT_EQ(find(run(1, 71)), std::pair(0L, 0L));
}

TEST_F(PrefixCacheTest, GivesUpThePathNotUsedForLongest) {
  make_cache(3 * (slot() + page()));
  insert(run(1, 70));
  insert(run(2, 70));
  insert(run(3, 70));
  find(run(1, 71));
  insert(run(4, 70));
  EXPECT_EQ(find(run(2, 71)).first, 0);
  EXPECT_EQ(find(run(1, 71)).first, 70);
}

// On one path the checkpoint goes whose loss costs the fewest tokens, and the beginning that all share stays.
TEST_F(PrefixCacheTest, OnOnePathTheCheapestGoesFirst) {
  make_cache(3 * slot() + 8 * page());  // these share no pages
  insert(run(1, 300));
  insert(run(1, 300) + run(2, 10));
  insert(run(1, 300) + run(2, 200));
  insert(run(1, 300) + run(2, 500));
  EXPECT_EQ(find(run(1, 300) + run(2, 501)).first, 800);
  EXPECT_EQ(find(run(1, 300) + run(2, 201)).first, 500);
  EXPECT_EQ(find(run(1, 300) + run(2, 11)).first, 300);
}

TEST_F(PrefixCacheTest, MakesRoomInThePoolForACheckpoint) {
  std::vector<Sequence> hogs;
  hogs.push_back(sequence({1}));
  while (model_->pool().free_slots() > 1) hogs.push_back(sequence({}));
  insert(run(1, 70));
  EXPECT_EQ(model_->pool().free_slots(), 0);
  cache_->keep(run(2, 1), hogs.front());  // takes the place of the only checkpoint
  EXPECT_EQ(cache_->stats().checkpoints, 1);
  cache_->evict();
  hogs.push_back(sequence({}));
  cache_->keep(run(3, 1), hogs.front());  // there is no room, and that is no error
  EXPECT_EQ(cache_->stats().checkpoints, 0);
}

// The tree under random use, against a list of what it holds.
TEST_F(PrefixCacheTest, AgreesWithAPlainList) {
  std::uint32_t state = 1;
  const auto random = [&](std::uint32_t n) {
    state = state * 1664525U + 1013904223U;
    return (state >> 16U) % n;
  };
  const auto random_tokens = [&] {
    Tokens out(1 + random(12));
    for (TokenId& t : out) t = static_cast<TokenId>(random(2));
    return out;
  };
  for (int step = 0; step < 2000; ++step) {
    if (const auto tokens = random_tokens(); random(3) > 0) insert(tokens);
    if (random(4) == 0) cache_->evict();
    const auto prompt = random_tokens();
    std::int64_t resumable = 0;
    std::int64_t shared = 0;
    for (const auto& entry : cache_->entries()) {
      const auto common = std::ranges::mismatch(entry.tokens, prompt).in1 - entry.tokens.begin();
      shared = std::max<std::int64_t>(shared, common);
      if (common == std::ssize(entry.tokens) && common < std::ssize(prompt)) {
        resumable = std::max<std::int64_t>(resumable, common);
      }
    }
    ASSERT_EQ(find(prompt), std::pair(resumable, shared)) << "step " << step;
    ASSERT_EQ(std::ssize(cache_->entries()), cache_->stats().checkpoints);
  }
}

}  // namespace
}  // namespace lily
