#include "engine/output_guide.h"

#include <algorithm>

#include "base/check.h"

namespace lily {
namespace {

// How Qwen's own budget ends a thought (model card of Qwen3); a thought that has not begun ends without a
// word.
constexpr std::string_view kClosing =
    "\n\nConsidering the limited time by the user, I have to give the solution based on the thinking "
    "directly now.\n"
    "</think>\n\n";
constexpr std::string_view kClosingUnbegun = "\n</think>\n\n";

}  // namespace

OutputGuide::OutputGuide(const Tokenizer& tokenizer, std::vector<TokenId> stop, OutputGuideOptions options)
    : tokenizer_(tokenizer),
      stop_(std::move(stop)),
      options_(std::move(options)),
      end_think_(tokenizer.added_token("</think>")) {
  options_.in_reasoning = options_.in_reasoning && end_think_.has_value();
  const auto end = static_cast<std::size_t>(tokenizer.end());
  mask_.assign((end + 63) / 64, 0);
  if (options_.grammar != nullptr) state_ = options_.grammar->start();
  if (options_.grammar == nullptr || !options_.in_reasoning) return;
  thinking_mask_.assign(mask_.size(), ~0ULL);
  for (const TokenId id : stop_) thinking_mask_[static_cast<std::size_t>(id) / 64] &= ~(1ULL << (id % 64));
}

std::span<const std::uint64_t> OutputGuide::allowed() {
  if (options_.in_reasoning && forced_.empty() && options_.thinking_budget &&
      reasoning_ >= *options_.thinking_budget) {
    close_reasoning();
  }
  if (!forced_.empty()) {
    allow_only(forced_.front());
    return mask_;
  }
  if (options_.in_reasoning) return thinking_mask_;  // what has to follow cannot if the answer ends here
  if (options_.grammar == nullptr) return {};
  if (state_ == GrammarAutomaton::kDead) {
    std::ranges::fill(mask_, 0);
  } else {
    options_.grammar->allowed(state_, mask_);
  }
  const bool stuck = std::ranges::all_of(mask_, [](std::uint64_t word) { return word == 0; });
  if (stuck || options_.grammar->accepts(state_)) {
    for (const TokenId id : stop_) set_bit(mask_, id);
  }
  return mask_;
}

void OutputGuide::close_reasoning() {
  const auto ids = tokenizer_.encode(reasoning_ == 0 ? kClosingUnbegun : kClosing);
  forced_.assign(ids.begin(), ids.end());
}

void OutputGuide::allow_only(TokenId id) {
  std::ranges::fill(mask_, 0);
  set_bit(mask_, id);
}

void OutputGuide::accept(TokenId id) {
  const bool forced = !forced_.empty();
  if (forced) {
    LILY_CHECK(forced_.front() == id, "token {} where {} was due", id, forced_.front());
    forced_.pop_front();
  }
  if (options_.in_reasoning) {
    ++reasoning_;
    options_.in_reasoning = id != end_think_;
  } else if (!forced && options_.grammar != nullptr && state_ != GrammarAutomaton::kDead) {
    state_ = options_.grammar->read(state_, tokenizer_.bytes(id));
  }
}

}  // namespace lily
