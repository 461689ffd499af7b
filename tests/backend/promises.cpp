#include "tests/backend/promises.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace lily::testing {

std::unique_ptr<Backend> make(const RandomModel& model, const BackendOptions& options) {
  auto backend = make_for_trial(model, options);
  LILY_CHECK(backend.ok(), "{}", backend.error().message);
  return std::move(backend).value();
}

Runs run_conversation(Backend& backend, const RandomModel& model, const Conversation& c) {
  auto runs = run_trial(backend, model, c);
  LILY_CHECK(runs.ok(), "{}", runs.error().message);
  return std::move(runs).value();
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

void expect_equal_bits_of_any_number(const RandomModel& model, const Make& make,
                                     std::span<const std::size_t> counts) {
  const std::int64_t vocab = model.weights().shapes.vocab;
  const std::size_t most = std::ranges::max(counts);
  const auto tokens = random_tokens(static_cast<std::int64_t>(2 * most), vocab, 11);
  const auto timeline_of = [](std::size_t i) {
    return Timeline{.pages = {static_cast<PageId>(i)}, .slot = static_cast<SlotId>(i)};
  };
  const auto alone = make();
  std::vector<std::vector<float>> expected;
  for (std::size_t i = 0; i < most; ++i) {
    Timeline timeline = timeline_of(i);
    run_step(*alone, model.weights(), {timeline.extend(std::span(tokens).subspan(i, 1), Logits::kNone)});
    expected.push_back(run_step(*alone, model.weights(),
                                {timeline.extend(std::span(tokens).subspan(most + i, 1), Logits::kLast)}));
  }
  for (const std::size_t rows : counts) {
    const auto together = make();
    std::vector<Timeline> timelines;
    for (std::size_t i = 0; i < rows; ++i) timelines.push_back(timeline_of(i));
    std::vector<float> logits;
    for (const std::size_t at : {std::size_t{0}, most}) {
      std::vector<Segment> segments;
      for (std::size_t i = 0; i < rows; ++i)
        segments.push_back(timelines[i].extend(std::span(tokens).subspan(at + i, 1), Logits::kLast));
      logits = run_step(*together, model.weights(), segments);
    }
    for (std::size_t i = 0; i < rows; ++i) {
      const auto mine =
          std::span(logits).subspan(i * static_cast<std::size_t>(vocab), static_cast<std::size_t>(vocab));
      EXPECT_TRUE(std::ranges::equal(mine, expected[i])) << "row " << i << " of " << rows;
    }
  }
}

void expect_chunks_to_agree_with_steps(const RandomModel& model, const Make& make, std::size_t tokens,
                                       std::span<const std::size_t> chunks, double bound) {
  const auto backend = make();
  const auto a = random_tokens(static_cast<std::int64_t>(tokens), model.weights().shapes.vocab, 3);
  const std::span<const TokenId> x(a);
  Timeline steps{.pages = {0, 1}, .slot = 0};
  std::vector<float> expected;
  for (std::size_t i = 0; i < x.size(); ++i)
    expected = run_step(*backend, model.weights(), {steps.extend(x.subspan(i, 1), Logits::kLast)});
  for (const std::size_t chunk : chunks) {
    backend->zero_slot(1);
    Timeline cut{.pages = {2, 3}, .slot = 1};
    std::vector<float> got;
    for (std::size_t i = 0; i < x.size(); i += chunk) {
      const auto part = x.subspan(i, std::min(chunk, x.size() - i));
      got = run_step(*backend, model.weights(), {cut.extend(part, Logits::kLast, Phase::kPrefill)});
    }
    EXPECT_LT(relative_error(got, expected), bound) << chunk;
  }
}

namespace {

// A prompt, then steps of two sequences: `check` gets each step's batch for another backend and the logits
// that it should have, [rows, V].
void beside_logits(const RandomModel& model, const Make& make,
                   const std::function<void(const Batch& batch, std::span<const float> logits)>& check) {
  const auto with_logits = make();
  const auto tokens = random_tokens(40, model.weights().shapes.vocab, 8);
  const std::span<const TokenId> x(tokens);
  Timeline first[2] = {{.pages = {0}, .slot = 0}, {.pages = {0}, .slot = 0}};
  Timeline second[2] = {{.pages = {1}, .slot = 1}, {.pages = {1}, .slot = 1}};
  for (std::size_t step = 0; step < 5; ++step) {
    SCOPED_TRACE(step);
    const std::size_t rows = step == 0 ? 9 : 1;
    const auto segments = [&](int which) {
      std::vector<Segment> s = {first[which].extend(x.subspan(step * 9 % 30, rows), Logits::kLast)};
      if (step > 0) s.push_back(second[which].extend(x.subspan(step, 1), Logits::kLast));
      return s;
    };
    const auto logits = run_step(*with_logits, model.weights(), segments(0));
    check({.segments = segments(1)}, logits);
  }
}

// Everything above the bound is listed, once, and nothing else.
void expect_lists(const Candidates& candidates, std::span<const float> logits) {
  std::vector<bool> listed(logits.size());
  for (const Candidate& c : candidates.list) {
    ASSERT_LT(c.id, std::ssize(logits));
    EXPECT_EQ(c.logit, logits[static_cast<std::size_t>(c.id)]);
    EXPECT_FALSE(listed[static_cast<std::size_t>(c.id)]) << "twice";
    listed[static_cast<std::size_t>(c.id)] = true;
  }
  for (std::size_t id = 0; id < logits.size(); ++id)
    EXPECT_TRUE(listed[id] || logits[id] <= candidates.above) << "id " << id << " is left out";
  EXPECT_GE(candidates.list.size(), std::min<std::size_t>(logits.size(), 20));
}

}  // namespace

void expect_likeliest_choice(const RandomModel& model, const Make& make) {
  const auto choosing = make();
  const auto vocab = static_cast<std::size_t>(model.weights().shapes.vocab);
  const auto end = vocab * 2 / 3;
  beside_logits(model, make, [&](const Batch& batch, std::span<const float> logits) {
    std::vector<TokenId> best(static_cast<std::size_t>(batch.logits_rows()));
    ASSERT_TRUE(forward_greedy(*choosing, model.weights(), batch, best, static_cast<TokenId>(end)).ok());
    for (std::size_t i = 0; i < best.size(); ++i) {
      const auto row = logits.subspan(i * vocab, end);
      EXPECT_EQ(best[i], std::ranges::max_element(row) - row.begin()) << "row " << i;
    }
  });
}

void expect_candidates(const RandomModel& model, const Make& make) {
  const auto listing = make();
  const auto vocab = static_cast<std::size_t>(model.weights().shapes.vocab);
  const auto end = vocab * 2 / 3;
  ASSERT_GT(listing->candidate_rows(), 1);
  beside_logits(model, make, [&](const Batch& batch, std::span<const float> logits) {
    std::vector<Candidates> candidates(static_cast<std::size_t>(batch.logits_rows()));
    ASSERT_TRUE(
        forward_candidates(*listing, model.weights(), batch, candidates, static_cast<TokenId>(end)).ok());
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      SCOPED_TRACE(i);
      const auto row = logits.subspan(i * vocab, vocab);
      std::vector<float> all(vocab);
      listing->read_logits(static_cast<std::int64_t>(i), all);
      EXPECT_TRUE(std::ranges::equal(all, row));
      expect_lists(candidates[i], row.first(end));
    }
  });
}

}  // namespace lily::testing
