#include "engine/task.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lily {
namespace {

// All of them are looked at: without a way out the compiler compares many at once.
bool holds_nan(std::span<const float> logits) {
  int nan = 0;
  for (const float l : logits) nan |= static_cast<int>(l != l);
  return nan != 0;
}

}  // namespace

Task::Task(GenerateRequest request, const LoadedModel& model, const std::shared_ptr<Generation>& generation)
    : request_(std::move(request)),
      model_(model),
      generation_(generation),
      sampler_(request_.sampling, model.vocab_end()) {
  const std::int64_t room = model.max_seq() - prompt_tokens();
  max_tokens_ = request_.max_tokens > 0 ? std::min(request_.max_tokens, room) : room;
  if (request_.timeout.count() > 0) deadline_ = since_ + request_.timeout;
  usage_.prompt_tokens = prompt_tokens();
  publish();
}

std::optional<FinishReason> Task::ended(Clock::time_point now) const {
  const auto generation = generation_.lock();
  if (generation == nullptr) return FinishReason::kCancelled;
  const std::lock_guard lock(generation->mutex_);
  if (generation->cancelled_) return FinishReason::kCancelled;
  if (now >= deadline_) return FinishReason::kTimeout;
  return std::nullopt;
}

void Task::begin(Sequence sequence, std::vector<std::int64_t> plan) {
  sequence_ = std::move(sequence);
  plan_ = std::move(plan);
  usage_.cached_tokens = position();
  note_time(&GenerationUsage::queue_seconds);
}

std::int64_t Task::prefill_rows(std::int64_t budget) const {
  const auto stop = std::ranges::upper_bound(plan_, position());
  const std::int64_t remaining = (stop != plan_.end() ? *stop : prompt_tokens()) - position();
  if (remaining <= budget) return remaining;
  return std::max<std::int64_t>((position() + budget) / kPrefillGrid * kPrefillGrid - position(), 0);
}

Result<Segment> Task::next_segment(std::int64_t rows) {
  if (!prefilling()) {
    return sequence_->extend(std::span(generated_).last(1), Phase::kDecode, Logits::kLast);
  }
  const auto part = prompt().subspan(static_cast<std::size_t>(position()), static_cast<std::size_t>(rows));
  const bool last = position() + rows == prompt_tokens();
  return sequence_->extend(part, Phase::kPrefill, last ? Logits::kLast : Logits::kNone);
}

bool Task::takes_best() const {
  const SamplingParams& p = request_.sampling;
  return p.temperature <= 0 && p.presence_penalty == 0 && p.frequency_penalty == 0 &&
         p.repetition_penalty == 1 && p.logit_bias.empty() && !request_.logprobs && request_.guide == nullptr;
}

bool Task::takes_candidates() const {
  return sampler_.takes_candidates() && !request_.logprobs;
}

std::optional<TokenId> Task::choose(const Candidates& candidates) const {
  std::span<const std::uint64_t> allowed;
  if (request_.guide != nullptr) allowed = request_.guide->allowed();
  return sampler_.sample_among(candidates, request_.prompt, generated_, allowed);
}

bool Task::advance(const Segment& segment, TokenId best) {
  passed(segment);
  return best < 0 ? fail_on_logits() : accept({.id = best, .logprob = 0, .top = {}});
}

bool Task::advance(const Segment& segment, std::span<float> logits) {
  passed(segment);
  if (logits.empty()) return false;
  if (holds_nan(logits)) return fail_on_logits();
  std::span<const std::uint64_t> allowed;
  if (request_.guide != nullptr) allowed = request_.guide->allowed();
  return accept(sampler_.sample(logits, request_.prompt, generated_, request_.logprobs, request_.top_logprobs,
                                allowed));
}

// The segment's tokens are in the state.
void Task::passed(const Segment& segment) {
  sequence_->advance();
  note_time(segment.phase == Phase::kPrefill ? &GenerationUsage::prefill_seconds
                                             : &GenerationUsage::decode_seconds);
}

bool Task::fail_on_logits() {
  finish(FinishReason::kError,
         fail(ErrorCode::kInternal, "the model produced logits that are not numbers at position {}",
              position()));
  return true;
}

bool Task::accept(const Sampled& token) {
  generated_.push_back(token.id);
  usage_.completion_tokens = generated_tokens();
  const bool stop = !request_.ignore_eos && std::ranges::binary_search(model_.eos(), token.id);
  if (request_.guide != nullptr && !stop) request_.guide->accept(token.id);
  if (const auto generation = generation_.lock()) {
    const std::lock_guard lock(generation->mutex_);
    generation->usage_ = usage_;
    if (!stop) generation->tokens_.push_back(token);
    generation->ready_.notify_all();
  }
  if (stop) {
    finish(FinishReason::kStop);
  } else if (exhausted()) {
    finish(FinishReason::kLength);
  }
  return stop || exhausted();
}

bool Task::checkpoint_due() const {
  return std::ranges::binary_search(plan_, position());
}

void Task::finish(FinishReason reason, Error error) {
  reason_ = reason;
  const auto generation = generation_.lock();
  if (generation == nullptr) return;
  const std::lock_guard lock(generation->mutex_);
  generation->reason_ = reason;
  generation->error_ = std::move(error);
  generation->ready_.notify_all();
}

std::vector<TokenId> Task::evaluated() const {
  std::vector<TokenId> tokens = request_.prompt;
  tokens.insert(tokens.end(), generated_.begin(), generated_.end());
  tokens.resize(static_cast<std::size_t>(position()));
  return tokens;
}

std::optional<Sequence> Task::take_sequence() {
  if (reason_ == FinishReason::kError) return std::nullopt;
  return std::exchange(sequence_, std::nullopt);
}

// Adds the time since the last call to one of the usage's clocks.
void Task::note_time(double GenerationUsage::* phase) {
  const auto now = Clock::now();
  usage_.*phase += std::chrono::duration<double>(now - since_).count();
  since_ = now;
  publish();
}

void Task::publish() {
  const auto generation = generation_.lock();
  if (generation == nullptr) return;
  const std::lock_guard lock(generation->mutex_);
  generation->usage_ = usage_;
  generation->prefilled_ = std::min(position(), prompt_tokens());
}

}  // namespace lily
