// A backend held against the reference on random models, block by block: what tests do, and what `lily
// selftest` does where nobody has run the backend yet.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/random_model.h"
#include "model/forward.h"

namespace lily {

/// A sequence's tokens, pages and slot.
struct Timeline {
  std::vector<PageId> pages;
  SlotId slot = 0;
  std::int64_t length = 0;

  /// A segment of one token decodes.
  [[nodiscard]] Segment extend(std::span<const TokenId> tokens, Logits logits) {
    return extend(tokens, logits, tokens.size() == 1 ? Phase::kDecode : Phase::kPrefill);
  }
  [[nodiscard]] Segment extend(std::span<const TokenId> tokens, Logits logits, Phase phase) {
    const Segment segment{
        .tokens = tokens, .position = length, .pages = pages, .slot = slot, .phase = phase, .logits = logits};
    length += static_cast<std::int64_t>(tokens.size());
    return segment;
  }
};

/// One step; its logits, [rows that want them, V].
Result<std::vector<float>> run_trial_step(Backend& backend, const ModelWeights& weights,
                                          std::vector<Segment> segments, const ResidualProbe& probe = {});

/// |got - expected| / |expected|; NaN, for which no comparison holds, where something is not a number.
[[nodiscard]] double relative_error(std::span<const float> got, std::span<const float> expected);
inline constexpr std::int64_t kSparingRows = 5;
/// The error that all rows of [rows, width] stay within, of kSparingRows or more all but a tenth. Among
/// random experts some are nearly equal: what is rounded can put another one among a row's chosen, and that
/// row is 3 to 15 % off.
[[nodiscard]] double error_of_nearly_all(std::span<const float> got, std::span<const float> expected,
                                         std::int64_t width);

struct Runs {
  std::vector<std::vector<float>> residuals;  ///< after each layer of each step, [rows, H]
  std::vector<std::vector<float>> logits;     ///< of each step
};

struct Conversation {
  std::int64_t last_chunk = 0;    ///< rows of another chunk of the second prompt
  std::int64_t decode_steps = 3;  ///< of both sequences
  bool probe = true;              ///< read the residual stream as well
};
/// Two sequences in mixed steps: a prompt, company, then single tokens of both.
Result<Runs> run_trial(Backend& backend, const RandomModel& model, const Conversation& conversation);

/// What run_trial() needs, and more.
inline constexpr BackendLimits kTrialLimits = {.kv_pages = 12, .slots = 10, .max_rows = 160};
/// The backend named in `options`, with every slot zeroed.
Result<std::unique_ptr<Backend>> make_for_trial(const RandomModel& model, const BackendOptions& options);

struct BlockComparison {
  std::string backend;  ///< its description
  std::int64_t models = 0;
  std::int64_t blocks = 0;  ///< whose outputs were compared
  double worst = 0;         ///< error_of_nearly_all() of steps that have rows to spare
  double worst_few = 0;     ///< of steps of fewer than kSparingRows rows, where one expert too many counts
};
/// A conversation of each of odd_sizes() on the reference and on the backend named in `options`.
Result<BlockComparison> compare_with_reference(const BackendOptions& options);

}  // namespace lily
