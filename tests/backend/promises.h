// What every backend promises (backend.h), as checks on one that `make` makes: against the reference, about
// company and about state. A backend's own test gives it the sizes and the bounds.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tests/backend/random_model.h"

namespace lily::testing {

using lily::Conversation;
using lily::dense_sizes;
using lily::error_of_nearly_all;
using lily::mixed_sizes;
using lily::odd_sizes;
using lily::relative_error;
using lily::Runs;

/// Room for the checks below.
inline constexpr BackendLimits kPromiseLimits = kTrialLimits;

/// The backend named in `options`, with every slot zeroed.
[[nodiscard]] std::unique_ptr<Backend> make(const RandomModel& model, const BackendOptions& options);
/// A fresh one, each time.
using Make = std::function<std::unique_ptr<Backend>()>;

/// run_trial() that must not fail.
[[nodiscard]] Runs run_conversation(Backend& backend, const RandomModel& model, const Conversation& c);

/// Prefill beside prefill, prefill beside decode, decode beside decode: a segment's bits are its own.
/// `company_rows`: of the prefill beside it.
void expect_equal_bits_in_company(const RandomModel& model, const Make& make, std::int64_t company_rows);
/// A copied, and a saved and restored, state goes on like its original, bit for bit.
void expect_copied_state_to_go_on(const RandomModel& model, const Make& make);
/// Slots and pages that are used again hold nothing of their past.
void expect_reused_state_to_be_fresh(const RandomModel& model, const Make& make);
/// So many rows decoded together each give the bits of a row alone.
void expect_equal_bits_of_any_number(const RandomModel& model, const Make& make,
                                     std::span<const std::size_t> counts);
/// A prompt in chunks of these sizes gives the logits of its tokens one by one, up to `bound` of relative
/// error.
void expect_chunks_to_agree_with_steps(const RandomModel& model, const Make& make, std::size_t tokens,
                                       std::span<const std::size_t> chunks, double bound);
/// forward_greedy() gives the largest logit below the end: alone, in company, and with one sequence's row
/// after the other's.
/// forward_candidates() lists the logits above its bound and no others, as read_logits() then says: alone, in
/// company, and with one sequence's rows.
void expect_candidates(const RandomModel& model, const Make& make);
void expect_likeliest_choice(const RandomModel& model, const Make& make);

}  // namespace lily::testing
