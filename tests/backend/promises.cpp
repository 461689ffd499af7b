#include "tests/backend/promises.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lily::testing {

std::unique_ptr<Backend> make(const RandomModel& model, const BackendOptions& options) {
  auto backend = make_backend(options, model.weights(), kPromiseLimits);
  LILY_CHECK(backend.ok(), "{}", backend.error().message);
  for (SlotId slot = 0; slot < kPromiseLimits.slots; ++slot) backend.value()->zero_slot(slot);
  return std::move(backend).value();
}

std::vector<ModelSize> odd_sizes() {
  return {
      {},
      {.hidden = 64,
       .vocab = 33,
       .query_heads = 1,
       .kv_heads = 1,
       .linear_key_heads = 2,
       .linear_value_heads = 2},
      {.hidden = 320,
       .attention = {true, false, false},
       .query_heads = 6,
       .kv_heads = 2,
       .linear_key_heads = 2,
       .linear_value_heads = 6,
       .experts = 17,
       .experts_per_token = 5,
       .expert_width = 192,
       .shared_width = 64},
      {.query_heads = 16,
       .kv_heads = 2,
       .linear_key_heads = 1,
       .linear_value_heads = 4,
       .bits = 8,
       .other_bits = 4},
  };
}

std::vector<ModelSize> mixed_sizes() {
  return {
      {.expert_width = 128, .bits = 3, .other_bits = 6},
      {.expert_width = 128, .bits = 5, .other_bits = 4, .group_size = 32, .other_group_size = 128},
      {.expert_width = 128, .bits = 8, .other_bits = 2, .group_size = 128, .other_group_size = 32},
      {.expert_width = 128, .bits = 6, .other_bits = 3, .group_size = 128, .other_group_size = 64},
  };
}

std::vector<ModelSize> dense_sizes() {
  return {
      {.dense_width = 192},
      {.hidden = 320,
       .attention = {true, false, false},
       .query_heads = 6,
       .kv_heads = 2,
       .linear_key_heads = 2,
       .linear_value_heads = 6,
       .dense_width = 64},
      {.bits = 6, .other_bits = 3, .group_size = 32, .dense_width = 384},
  };
}

double relative_error(std::span<const float> got, std::span<const float> expected) {
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - expected[i], 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(error / norm);
}

Runs run_conversation(Backend& backend, const RandomModel& model, const Conversation& c) {
  const ModelWeights& weights = model.weights();
  const auto a = random_tokens(80, weights.shapes.vocab, 1);
  const auto b = random_tokens(200, weights.shapes.vocab, 2);
  Timeline first{.pages = {3}, .slot = 4};
  Timeline second{.pages = {0}, .slot = 1};
  Runs runs;
  std::int64_t rows = 0;
  const auto read = [&](int) {
    runs.residuals.emplace_back(static_cast<std::size_t>(rows * weights.shapes.hidden));
    backend.read_residual(runs.residuals.back());
  };
  const auto step = [&](std::vector<Segment> segments) {
    rows = Batch{.segments = segments}.rows();
    const ResidualProbe probe = c.probe ? ResidualProbe(read) : ResidualProbe();
    runs.logits.push_back(run_step(backend, weights, std::move(segments), probe));
  };
  const auto next = [](Timeline& timeline, const std::vector<TokenId>& tokens, std::int64_t count,
                       Logits wanted) {
    return timeline.extend(
        std::span(tokens).subspan(static_cast<std::size_t>(timeline.length), static_cast<std::size_t>(count)),
        wanted);
  };
  step({next(first, a, 1, Logits::kLast)});  // shorter than the convolution
  step({next(first, a, 2, Logits::kAll)});
  step({next(second, b, 65, Logits::kLast), next(first, a, 1, Logits::kAll)});
  step({next(first, a, 33, Logits::kNone), next(second, b, 5, Logits::kAll)});
  if (c.last_chunk > 0) step({next(second, b, c.last_chunk, Logits::kLast)});
  for (std::int64_t i = 0; i < c.decode_steps; ++i) {
    step({next(first, a, 1, Logits::kLast), next(second, b, 1, Logits::kLast)});
  }
  return runs;
}

void expect_equal_bits_in_company(const RandomModel& model, const Make& make, std::int64_t company_rows) {
  const auto together = make();
  const auto alone = make();
  const ModelWeights& weights = model.weights();
  const auto a = random_tokens(60, weights.shapes.vocab, 1);
  const auto noise = random_tokens(600, weights.shapes.vocab, 9);
  const std::span<const TokenId> x(a);
  const std::span<const TokenId> n(noise);
  Timeline solo{.pages = {2, 7}, .slot = 0};
  Timeline mixed{.pages = {5, 1}, .slot = 3};
  Timeline company{.pages = {8, 9}, .slot = 2};
  Timeline other{.pages = {10, 11}, .slot = 5};
  std::size_t used = 0;
  std::size_t done = 0;
  for (const std::size_t rows : {1, 2, 3, 17, 1, 1, 33, 1}) {
    const auto tokens = x.subspan(done, rows);
    done += rows;
    const auto expected = run_step(*alone, weights, {solo.extend(tokens, Logits::kAll)});
    const std::size_t more = done % 2 == 0 ? 1 : static_cast<std::size_t>(company_rows);
    const auto got =
        run_step(*together, weights,
                 {company.extend(n.subspan(used, more), Logits::kNone), mixed.extend(tokens, Logits::kAll),
                  other.extend(n.subspan(used + more, 1), Logits::kNone)});
    used += more + 1;
    EXPECT_EQ(got, expected) << rows << " rows";
  }
}

void expect_copied_state_to_go_on(const RandomModel& model, const Make& make) {
  const ModelWeights& weights = model.weights();
  const auto backend = make();
  const auto a = random_tokens(50, weights.shapes.vocab, 5);
  const std::span<const TokenId> x(a);
  Timeline original{.pages = {0}, .slot = 0};
  run_step(*backend, weights, {original.extend(x.subspan(0, 40), Logits::kNone)});
  backend->copy_slot(0, 3);
  backend->copy_page(0, 6);
  std::vector<std::byte> slot(static_cast<std::size_t>(backend->slot_bytes()));
  std::vector<std::byte> page(static_cast<std::size_t>(backend->page_bytes()));
  backend->read_slot(0, slot);
  backend->read_page(0, page);
  Timeline copy{.pages = {6}, .slot = 3, .length = 40};
  const auto expected = run_step(*backend, weights, {original.extend(x.subspan(40), Logits::kAll)});
  EXPECT_EQ(run_step(*backend, weights, {copy.extend(x.subspan(40), Logits::kAll)}), expected);

  const auto fresh = make();
  fresh->write_slot(2, slot);
  fresh->write_page(9, page);
  std::vector<std::byte> read(slot.size());
  fresh->read_slot(2, read);
  EXPECT_EQ(read, slot);
  Timeline restored{.pages = {9}, .slot = 2, .length = 40};
  EXPECT_EQ(run_step(*fresh, weights, {restored.extend(x.subspan(40), Logits::kAll)}), expected);
}

void expect_reused_state_to_be_fresh(const RandomModel& model, const Make& make) {
  const ModelWeights& weights = model.weights();
  const auto backend = make();
  const auto a = random_tokens(90, weights.shapes.vocab, 6);
  const std::span<const TokenId> x(a);
  const auto first_rows = [&] {
    Timeline timeline{.pages = {0}, .slot = 0};
    auto logits = run_step(*backend, weights, {timeline.extend(x.subspan(0, 3), Logits::kAll)});
    run_step(*backend, weights, {timeline.extend(x.subspan(3), Logits::kNone)});
    return logits;
  };
  const auto expected = first_rows();
  backend->zero_slot(0);
  EXPECT_EQ(first_rows(), expected);
  backend->release_page(0);
  backend->release_slot(0);
  backend->zero_slot(0);
  EXPECT_EQ(first_rows(), expected);
}

}  // namespace lily::testing
