#include "backend/self_test.h"

#include <algorithm>
#include <cmath>

namespace lily {

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

Result<std::vector<float>> run_trial_step(Backend& backend, const ModelWeights& weights,
                                          std::vector<Segment> segments, const ResidualProbe& probe) {
  const Batch batch{.segments = std::move(segments)};
  std::vector<float> logits(static_cast<std::size_t>(batch.logits_rows() * weights.shapes.vocab));
  LILY_TRY_VOID(forward(backend, weights, batch, logits, probe));
  return logits;
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

double error_of_nearly_all(std::span<const float> got, std::span<const float> expected, std::int64_t width) {
  std::vector<double> errors;
  for (std::size_t at = 0; at < got.size(); at += static_cast<std::size_t>(width)) {
    const auto row = [&](std::span<const float> rows) {
      return rows.subspan(at, static_cast<std::size_t>(width));
    };
    errors.push_back(relative_error(row(got), row(expected)));
  }
  std::ranges::sort(errors, [](double a, double b) { return a < b || (std::isnan(b) && !std::isnan(a)); });
  const std::size_t spared = std::ssize(errors) >= kSparingRows ? (errors.size() + 9) / 10 : 0;
  return errors[errors.size() - 1 - spared];
}

Result<Runs> run_trial(Backend& backend, const RandomModel& model, const Conversation& c) {
  const ModelWeights& weights = model.weights();
  const auto a = random_tokens(80, weights.shapes.vocab, 1);
  const auto b = random_tokens(200, weights.shapes.vocab, 2);
  Timeline first{.pages = {3}, .slot = 4};
  Timeline second{.pages = {0}, .slot = 1};
  Runs runs;
  Result<void> failed;
  std::int64_t rows = 0;
  const auto read = [&](int) {
    runs.residuals.emplace_back(static_cast<std::size_t>(rows * weights.shapes.hidden));
    backend.read_residual(runs.residuals.back());
  };
  const auto step = [&](std::vector<Segment> segments) {
    rows = Batch{.segments = segments}.rows();
    const ResidualProbe probe = c.probe ? ResidualProbe(read) : ResidualProbe();
    auto logits = run_trial_step(backend, weights, std::move(segments), probe);
    if (logits.ok()) {
      runs.logits.push_back(std::move(logits).value());
    } else if (failed.ok()) {
      failed = std::move(logits).error();
    }
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
  if (!failed.ok()) return failed.error();
  return runs;
}

Result<std::unique_ptr<Backend>> make_for_trial(const RandomModel& model, const BackendOptions& options) {
  LILY_TRY(auto backend, make_backend(options, model.weights(), kTrialLimits));
  for (SlotId slot = 0; slot < kTrialLimits.slots; ++slot) backend->zero_slot(slot);
  return backend;
}

Result<BlockComparison> compare_with_reference(const BackendOptions& options) {
  constexpr Conversation kConversation = {.last_chunk = 40, .decode_steps = 2};
  BlockComparison comparison;
  const auto add = [&comparison](std::span<const float> got, std::span<const float> expected,
                                 std::int64_t width) {
    const double error = error_of_nearly_all(got, expected, width);
    const bool few = std::ssize(got) < kSparingRows * width;
    double& worst = few ? comparison.worst_few : comparison.worst;
    ++comparison.blocks;
    if (!(error <= worst)) worst = error;  // NaN stays
  };
  for (const ModelSize& size : odd_sizes()) {
    const RandomModel model(size);
    LILY_TRY(const auto reference, make_for_trial(model, {.name = "reference"}));
    LILY_TRY(const auto backend, make_for_trial(model, options));
    LILY_TRY(const Runs expected, run_trial(*reference, model, kConversation));
    LILY_TRY(const Runs got, run_trial(*backend, model, kConversation));
    for (std::size_t i = 0; i < got.residuals.size(); ++i)
      add(got.residuals[i], expected.residuals[i], size.hidden);
    for (std::size_t i = 0; i < got.logits.size(); ++i) {
      if (!got.logits[i].empty()) add(got.logits[i], expected.logits[i], size.vocab);
    }
    comparison.backend = backend->description();
    ++comparison.models;
  }
  return comparison;
}

}  // namespace lily
