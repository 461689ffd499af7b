#include "engine/task.h"

#include <algorithm>
#include <cmath>

namespace lily {

Engine::Task::Task(GenerateRequest request, const LoadedModel& model,
                   const std::shared_ptr<Generation>& generation)
    : request_(std::move(request)),
      model_(model),
      generation_(generation),
      sampler_(request_.sampling, model.vocab_end()) {
  const std::int64_t room = model.max_seq() - prompt_tokens();
  max_tokens_ = request_.max_tokens > 0 ? std::min(request_.max_tokens, room) : room;
  generation->usage_.prompt_tokens = prompt_tokens();
}

bool Engine::Task::cancelled() const {
  const auto generation = generation_.lock();
  if (generation == nullptr) return true;
  const std::lock_guard lock(generation->mutex_);
  return generation->cancelled_;
}

Result<void> Engine::Task::start(StatePool& pool) {
  note_time(&GenerationUsage::queue_seconds);
  LILY_TRY(sequence_, Sequence::create(pool));
  return {};
}

Result<Segment> Engine::Task::next_segment(std::int64_t chunk) {
  if (!prefilling()) {
    return sequence_->extend(std::span(generated_).last(1), Phase::kDecode, Logits::kLast);
  }
  const std::int64_t remaining = prompt_tokens() - prefilled_;
  const std::int64_t count = next_chunk(sequence_->length(), remaining, chunk);
  const auto part = std::span<const TokenId>(request_.prompt)
                        .subspan(static_cast<std::size_t>(prefilled_), static_cast<std::size_t>(count));
  return sequence_->extend(part, Phase::kPrefill, count == remaining ? Logits::kLast : Logits::kNone);
}

bool Engine::Task::advance(const Segment& segment, std::span<float> logits) {
  const bool was_prefill = prefilling();
  if (was_prefill) prefilled_ += segment.rows();
  sequence_->advance();
  note_time(was_prefill ? &GenerationUsage::prefill_seconds : &GenerationUsage::decode_seconds);
  if (const auto generation = generation_.lock()) {
    const std::lock_guard lock(generation->mutex_);
    generation->prefilled_ = prefilled_;
  }
  if (logits.empty()) return false;
  if (std::ranges::any_of(logits, [](float l) { return std::isnan(l); })) {
    finish(FinishReason::kError,
           fail(ErrorCode::kInternal, "the model produced logits that are not numbers at position {}",
                sequence_->length()));
    return true;
  }
  std::span<const std::uint64_t> allowed;
  if (request_.guide != nullptr) allowed = request_.guide->allowed();
  return accept(sampler_.sample(logits, request_.prompt, generated_, request_.logprobs, request_.top_logprobs,
                                allowed));
}

bool Engine::Task::accept(const Sampled& token) {
  generated_.push_back(token.id);
  const bool stop = !request_.ignore_eos && std::ranges::binary_search(model_.eos(), token.id);
  if (request_.guide != nullptr && !stop) request_.guide->accept(token.id);
  if (const auto generation = generation_.lock()) {
    const std::lock_guard lock(generation->mutex_);
    generation->usage_.completion_tokens = generated_tokens();
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

void Engine::Task::finish(FinishReason reason, Error error) {
  const auto generation = generation_.lock();
  if (generation == nullptr) return;
  const std::lock_guard lock(generation->mutex_);
  generation->reason_ = reason;
  generation->error_ = std::move(error);
  generation->ready_.notify_all();
}

// Adds the time since the last call to one of the usage's clocks.
void Engine::Task::note_time(double GenerationUsage::* phase) {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - since_).count();
  since_ = now;
  if (const auto generation = generation_.lock()) {
    const std::lock_guard lock(generation->mutex_);
    generation->usage_.*phase += seconds;
  }
}

}  // namespace lily
