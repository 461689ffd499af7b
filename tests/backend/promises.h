// What every backend promises (backend.h), as checks on one that `make` makes: against the reference, about
// company and about state. A backend's own test gives it the sizes and the bounds.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tests/backend/random_model.h"

namespace lily::testing {

/// Room for the checks below.
inline constexpr BackendLimits kPromiseLimits = {.kv_pages = 12, .slots = 10, .max_rows = 160};

/// The backend named in `options`, with every slot zeroed.
[[nodiscard]] std::unique_ptr<Backend> make(const RandomModel& model, const BackendOptions& options);
/// A fresh one, each time.
using Make = std::function<std::unique_ptr<Backend>()>;

/// Sizes at which some backend has gone wrong: one query head, 1 to 8 of them a KV head, 1 to 4 value heads a
/// key head, widths that fill no tile, odd vocabularies, 4- and 8-bit matrices mixed.
[[nodiscard]] std::vector<ModelSize> odd_sizes();
/// Every width of published mixed quantisations (2, 3, 5 and 6 bits beside 4 and 8) and every group size.
[[nodiscard]] std::vector<ModelSize> mixed_sizes();
/// Dense feed-forwards.
[[nodiscard]] std::vector<ModelSize> dense_sizes();

/// |got - expected| / |expected|; NaN, for which no comparison holds, where something is not a number.
[[nodiscard]] double relative_error(std::span<const float> got, std::span<const float> expected);

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
[[nodiscard]] Runs run_conversation(Backend& backend, const RandomModel& model, const Conversation& c);

/// Prefill beside prefill, prefill beside decode, decode beside decode: a segment's bits are its own.
/// `company_rows`: of the prefill beside it.
void expect_equal_bits_in_company(const RandomModel& model, const Make& make, std::int64_t company_rows);
/// A copied, and a saved and restored, state goes on like its original, bit for bit.
void expect_copied_state_to_go_on(const RandomModel& model, const Make& make);
/// Slots and pages that are used again hold nothing of their past.
void expect_reused_state_to_be_fresh(const RandomModel& model, const Make& make);

}  // namespace lily::testing
