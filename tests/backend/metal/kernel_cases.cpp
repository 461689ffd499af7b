#include "tests/backend/metal/kernel_cases.h"

#include <algorithm>

#include "backend/metal/metal_backend.h"
#include "tests/backend/random_model.h"

namespace lily::testing {
namespace {

/// What a step runs.
struct Step {
  std::int64_t prompt = 0;    ///< rows of the first sequence's prompt
  std::int64_t decoding = 0;  ///< other sequences that decode; without a prompt, the first among them
  bool greedy = false;        ///< the device chooses
  bool candidates = false;    ///< the device lists what may be chosen
};

// The list has no order.
void append_sorted(const Candidates& row, std::vector<float>& to) {
  std::vector<Candidate> list = row.list;
  std::ranges::sort(list, {}, &Candidate::id);
  for (const Candidate& c : list) to.insert(to.end(), {static_cast<float>(c.id), c.logit});
  to.push_back(row.above);
}

Result<std::vector<float>> run_steps(const RandomModel& model, const std::vector<Step>& steps,
                                     std::unique_ptr<metal::GpuDevice> device) {
  constexpr std::int64_t kSequences = 6;
  const ModelWeights& weights = model.weights();
  LILY_TRY(const auto backend,
           metal::MetalBackend::create("metal-emulated", std::move(device), weights,
                                       {.kv_pages = kSequences, .slots = kSequences, .max_rows = 128}));
  std::vector<Timeline> sequences;
  for (std::int32_t i = 0; i < kSequences; ++i) {
    sequences.push_back({.pages = {i}, .slot = i});
    backend->zero_slot(i);
  }
  const auto tokens = random_tokens(256, weights.shapes.vocab, 3);
  const std::span<const TokenId> text(tokens);
  std::vector<float> all;
  for (const Step& step : steps) {
    Batch batch;
    if (step.prompt > 0) {
      batch.segments.push_back(sequences[0].extend(text.first(static_cast<std::size_t>(step.prompt)),
                                                   Logits::kLast, Phase::kPrefill));
    }
    const std::size_t first = step.prompt > 0 ? 1 : 0;
    for (std::size_t i = first; i < first + static_cast<std::size_t>(step.decoding); ++i) {
      batch.segments.push_back(sequences[i].extend(text.subspan(i, 1), Logits::kLast, Phase::kDecode));
    }
    const auto rows = static_cast<std::size_t>(batch.logits_rows());
    const auto end = static_cast<TokenId>(weights.shapes.vocab);
    if (step.candidates) {
      std::vector<Candidates> candidates(rows);
      LILY_TRY_VOID(forward_candidates(*backend, weights, batch, candidates, end));
      for (const Candidates& row : candidates) append_sorted(row, all);
    } else if (step.greedy) {
      std::vector<TokenId> best(rows);
      LILY_TRY_VOID(forward_greedy(*backend, weights, batch, best, end));
    } else {
      std::vector<float> logits(rows * static_cast<std::size_t>(weights.shapes.vocab));
      LILY_TRY_VOID(forward(*backend, weights, batch, logits));
      all.insert(all.end(), logits.begin(), logits.end());
    }
  }
  return all;
}

KernelCase make_case(std::string name, const ModelSize& size, std::vector<Step> steps) {
  return {std::move(name), [size, steps = std::move(steps)](std::unique_ptr<metal::GpuDevice> device) {
            return run_steps(RandomModel(size), steps, std::move(device));
          }};
}

}  // namespace

std::vector<KernelCase> kernel_cases() {
  const ModelSize small = {.hidden = 64,
                           .vocab = 33,
                           .attention = {false, true},
                           .query_heads = 2,
                           .linear_value_heads = 1,
                           .shared_width = 64};
  const ModelSize wide = {.hidden = 320,
                          .vocab = 150,
                          .attention = {true, false},
                          .query_heads = 8,
                          .kv_heads = 2,
                          .linear_key_heads = 1,
                          .linear_value_heads = 2,
                          .experts = 17,
                          .experts_per_token = 5,
                          .expert_width = 192,
                          .shared_width = 64};
  const ModelSize dense = {.hidden = 64,
                           .vocab = 33,
                           .attention = {false},
                           .linear_value_heads = 1,
                           .bits = 3,
                           .other_bits = 6,
                           .group_size = 32,
                           .dense_width = 128};
  return {
      make_case("decoding one row", small,
                {{.decoding = 1}, {.decoding = 1, .greedy = true}, {.decoding = 1, .candidates = true}}),
      make_case("a prompt of two chunks", small, {{.prompt = 37}}),
      make_case("a prompt beside decoding", small, {{.prompt = 9}, {.prompt = 40, .decoding = 2}}),
      make_case("keys in several ranges", small, {{.prompt = 70}, {.decoding = 2}}),
      make_case("a dense member", dense, {{.prompt = 9}, {.prompt = 3, .decoding = 2}}),
      make_case("wide rows", wide, {{.prompt = 35, .decoding = 4}, {.decoding = 5}}),
  };
}

}  // namespace lily::testing
