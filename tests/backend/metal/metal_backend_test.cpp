// The Metal backend against the reference, and what it promises about company, cuts and state, on the
// emulated device.
#include "backend/metal/metal_backend.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/backend/promises.h"

namespace lily {
namespace {

using testing::Conversation;
using testing::error_of_nearly_all;
using testing::kPromiseLimits;
using testing::ModelSize;
using testing::random_tokens;
using testing::RandomModel;
using testing::relative_error;
using testing::run_conversation;
using testing::run_step;
using testing::Runs;
using testing::Timeline;

std::unique_ptr<Backend> make(const RandomModel& model, const std::string& name = "metal-emulated") {
  return testing::make(model, {.name = name});
}

/// Experts and dense members, weights of every width in groups of every size.
std::vector<ModelSize> sizes() {
  std::vector<ModelSize> all = testing::odd_sizes();
  for (const auto& more : {testing::dense_sizes(), testing::mixed_sizes()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::string name_of(const ModelSize& size) {
  return fmt::format("hidden {}, {}/{} bits in groups of {}/{}, dense {}", size.hidden, size.bits,
                     size.other_bits, size.group_size, size.other_group_size, size.dense_width);
}

TEST(MetalBackend, MatchesTheReferenceBlockByBlock) {
  const Conversation conversation = {.last_chunk = 40, .decode_steps = 2};
  for (const ModelSize& size : sizes()) {
    const RandomModel model(size);
    const Runs expected = run_conversation(*make(model, "reference"), model, conversation);
    const Runs got = run_conversation(*make(model), model, conversation);
    ASSERT_EQ(got.residuals.size(), expected.residuals.size());
    for (std::size_t i = 0; i < got.residuals.size(); ++i) {
      EXPECT_LT(error_of_nearly_all(got.residuals[i], expected.residuals[i], size.hidden), 3e-2)
          << name_of(size) << " block " << i;
    }
    for (std::size_t i = 0; i < got.logits.size(); ++i) {
      if (expected.logits[i].empty()) continue;
      EXPECT_LT(error_of_nearly_all(got.logits[i], expected.logits[i], size.vocab), 3e-2)
          << name_of(size) << " step " << i;
    }
  }
}

// Decoding keeps f32 activations; what remains is attention's bf16.
TEST(MetalBackend, DecodingAloneIsCloseToTheReference) {
  for (const ModelSize& size : sizes()) {
    const RandomModel model(size);
    const auto tokens = random_tokens(12, size.vocab, 3);
    const auto run = [&](const std::string& name) {
      const auto backend = make(model, name);
      Timeline timeline{.pages = {1}, .slot = 2};
      std::vector<float> logits;
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const auto some = run_step(*backend, model.weights(),
                                   {timeline.extend(std::span(tokens).subspan(i, 1), Logits::kLast)});
        logits.insert(logits.end(), some.begin(), some.end());
      }
      return logits;
    };
    EXPECT_LT(error_of_nearly_all(run("metal-emulated"), run("reference"), size.vocab), 1.5e-2)
        << name_of(size);
  }
}

TEST(MetalBackend, EqualBitsAloneAndInCompany) {
  const RandomModel model({});
  testing::expect_equal_bits_in_company(model, [&] { return make(model); }, 20);
  const RandomModel dense(testing::dense_sizes().back());
  testing::expect_equal_bits_in_company(dense, [&] { return make(dense); }, 20);
}

// One to five rows take kernels for 1, 2 and 4 rows, in one round or two.
TEST(MetalBackend, AnyNumberOfDecodingRowsGivesEqualBits) {
  const RandomModel model({.hidden = 128, .experts = 17, .expert_width = 64, .shared_width = 64});
  testing::expect_equal_bits_of_any_number(
      model, [&] { return make(model); }, std::array<std::size_t, 3>{2, 3, 5});
  const RandomModel dense({.hidden = 128, .bits = 3, .other_bits = 5, .group_size = 32, .dense_width = 192});
  testing::expect_equal_bits_of_any_number(
      dense, [&] { return make(dense); }, std::array<std::size_t, 2>{3, 5});
}

// Prompts are cut on the grid of 64; one row may remain. 257 rows take tall tiles, 64 short ones.
TEST(MetalBackend, PrefillGivesEqualBitsHoweverItIsCut) {
  const RandomModel model({.hidden = 64, .vocab = 40, .expert_width = 64, .shared_width = 64});
  auto made =
      make_backend({.name = "metal-emulated"}, model.weights(), {.kv_pages = 4, .slots = 2, .max_rows = 260});
  ASSERT_TRUE(made.ok()) << made.error().message;
  Backend& backend = **made;
  backend.zero_slot(0);
  backend.zero_slot(1);
  const auto a = random_tokens(257, 40, 4);
  const std::span<const TokenId> x(a);
  Timeline whole{.pages = {0, 2}, .slot = 0};
  const auto expected = run_step(backend, model.weights(), {whole.extend(x, Logits::kLast)});
  Timeline cut{.pages = {1, 3}, .slot = 1};
  for (std::size_t i = 0; i < 256; i += 64)
    run_step(backend, model.weights(), {cut.extend(x.subspan(i, 64), Logits::kNone)});
  EXPECT_EQ(
      run_step(backend, model.weights(), {cut.extend(x.subspan(256, 1), Logits::kLast, Phase::kPrefill)}),
      expected);
}

// Over two pages and several ranges of attention, at a cut beside every grid.
TEST(MetalBackend, ChunksAgreeWithTokenByToken) {
  const RandomModel model({.hidden = 64, .vocab = 40});
  testing::expect_chunks_to_agree_with_steps(
      model, [&] { return make(model); }, 290, std::array<std::size_t, 2>{7, 145}, 1e-2);
}

TEST(MetalBackend, CopiedStateGoesOnLikeItsOriginal) {
  const RandomModel model({});
  testing::expect_copied_state_to_go_on(model, [&] { return make(model); });
}

TEST(MetalBackend, ReusedSlotsAndPagesHoldNothingOfTheirPast) {
  const RandomModel model({});
  testing::expect_reused_state_to_be_fresh(model, [&] { return make(model); });
}

// Of a vocabulary that has many more, and one that has fewer than are listed.
TEST(MetalBackend, ListsTheLogitsNearTheLargest) {
  for (const std::int64_t vocab : {150, 3000}) {
    const RandomModel model({.hidden = 64, .vocab = vocab});
    testing::expect_candidates(model, [&] { return make(model); });
  }
}

TEST(MetalBackend, ChoosesTheLikeliestToken) {
  const RandomModel model({});
  testing::expect_likeliest_choice(model, [&] { return make(model); });
}

// The account in docs/kernels-metal.md, for two layers of each kind.
TEST(MetalBackend, EncodesTheLevelsOfTheAccount) {
  const RandomModel model({.attention = {false, true, false, true}, .bits = 4, .other_bits = 8});
  const auto backend = make(model);
  auto& metal = dynamic_cast<metal::MetalBackend&>(*backend);
  const auto tokens = random_tokens(67, 150, 2);
  Timeline timeline{.pages = {0}, .slot = 0};
  const auto levels_of = [&](std::size_t first, std::size_t count) {
    const std::int64_t before = metal.levels();
    const Batch batch{.segments = {timeline.extend(std::span(tokens).subspan(first, count), Logits::kLast)}};
    std::vector<TokenId> best(1);
    EXPECT_TRUE(forward_greedy(*backend, model.weights(), batch, best, 100).ok());
    return metal.levels() - before;
  };
  EXPECT_EQ(levels_of(0, 1), 2 * 6 + 2 * 7 + 4);
  EXPECT_EQ(levels_of(1, 65), 2 * 14 + 2 * 12 + 4);
  EXPECT_EQ(levels_of(66, 1), 2 * 6 + 2 * 8 + 4);  // two ranges of keys, to be joined
}

// The device has the first layers while the host encodes the others.
TEST(MetalBackend, HandsTheFirstLayersOverBeforeTheOthersAreEncoded) {
  const RandomModel model({.attention = {false, true, false}});
  const ModelWeights& weights = model.weights();
  const auto backend = make(model);
  auto& metal = dynamic_cast<metal::MetalBackend&>(*backend);
  const auto tokens = random_tokens(2, 150, 2);
  Timeline timeline{.pages = {0}, .slot = 0};
  const Batch batch{.segments = {timeline.extend(std::span(tokens).first(1), Logits::kLast)}};
  const LayerWeights& first = weights.layers.front();
  backend->begin(batch);
  backend->embed({.embed_tokens = weights.embed_tokens});
  backend->recurrent_block(
      {.layer = 0, .linear_index = 0, .weights = std::get<RecurrentWeights>(first.mixer)});
  EXPECT_EQ(metal.lists(), 0);
  backend->moe_block({.layer = 0, .weights = std::get<MoeWeights>(first.mlp)});
  EXPECT_EQ(metal.lists(), 1);
  ASSERT_TRUE(backend->finish().ok());
  EXPECT_EQ(metal.lists(), 1);

  run_step(*backend, weights, {timeline.extend(std::span(tokens).last(1), Logits::kLast)});
  EXPECT_EQ(metal.lists(), 1 + 2);  // the other two layers and the head are one
}

TEST(MetalBackend, RefusesWhatItCannotRun) {
  const RandomModel model({});
  const auto error_of = [&](const BackendOptions& options, const ModelWeights& weights,
                            const BackendLimits& limits) {
    return make_backend(options, weights, limits).error();
  };
  ModelWeights many = model.weights();
  many.shapes.experts = 513;
  const Error experts = error_of({.name = "metal-emulated"}, many, kPromiseLimits);
  EXPECT_EQ(experts.code, ErrorCode::kUnsupported);
  EXPECT_NE(experts.message.find("513 experts"), std::string::npos) << experts.message;

  BackendLimits vast = kPromiseLimits;
  vast.kv_pages = std::int64_t{1} << 24;
  const Error memory = error_of({.name = "metal-emulated"}, model.weights(), vast);
  EXPECT_EQ(memory.code, ErrorCode::kExhausted);
  EXPECT_NE(memory.message.find("K/V pages"), std::string::npos) << memory.message;

  EXPECT_EQ(error_of({.name = "metal-emulated", .kv_type = "q8"}, model.weights(), kPromiseLimits).code,
            ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace lily
