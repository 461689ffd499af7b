#include "tests/backend/promises.h"

#include <gtest/gtest.h>

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

}  // namespace lily::testing
