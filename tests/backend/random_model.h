// A small model of random weights, in memory, and a way to run tokens through a backend.
#pragma once

#include <memory>
#include <vector>

#include "backend/self_test.h"
#include "tests/backend/quantized_matrix.h"

namespace lily::testing {

using lily::ModelSize;
using lily::random_tokens;
using lily::RandomModel;
using lily::Timeline;

/// One step; returns its logits.
inline std::vector<float> run_step(Backend& backend, const ModelWeights& weights,
                                   std::vector<Segment> segments, const ResidualProbe& probe = {}) {
  auto logits = run_trial_step(backend, weights, std::move(segments), probe);
  LILY_CHECK(logits.ok(), "{}", logits.error().message);
  return std::move(logits).value();
}

}  // namespace lily::testing
