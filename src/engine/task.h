// One request on its way through the engine thread: its sequence, how far it is, what it generated.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/prefix_cache.h"
#include "engine/sampler.h"
#include "engine/sequence.h"

namespace lily {

class Task {
 public:
  using Clock = std::chrono::steady_clock;

  Task(GenerateRequest request, const LoadedModel& model, const std::shared_ptr<Generation>& generation);

  /// Why the task has to end now, whatever it is doing: the consumer cancelled or let go of its handle, or
  /// the deadline has passed.
  [[nodiscard]] std::optional<FinishReason> ended(Clock::time_point now) const;
  /// No token fits the context or the limit is used up.
  [[nodiscard]] bool exhausted() const { return generated_tokens() >= max_tokens_; }

  /// Gives the task its sequence, which may hold the beginning of its prompt already: from here on it takes
  /// part in steps. `plan`: positions where checkpoint_due() is to say so.
  void begin(Sequence sequence, std::vector<std::int64_t> plan);

  [[nodiscard]] bool prefilling() const { return position() < prompt_tokens(); }
  /// Rows of the next prompt chunk, at most `budget`; 0 if no chunk that ends on the grid fits.
  [[nodiscard]] std::int64_t prefill_rows(std::int64_t budget) const;
  /// This task's part of the next step: `rows` of the prompt, or the last sampled token.
  Result<Segment> next_segment(std::int64_t rows);
  /// Nothing of the next token depends on more than which logit is the largest.
  [[nodiscard]] bool takes_best() const;
  /// Nor on more than the logits near the largest.
  [[nodiscard]] bool takes_candidates() const;
  /// The next token, if these say which.
  [[nodiscard]] std::optional<TokenId> choose(const Candidates& candidates) const;
  /// As the other advance(), with the likeliest token in place of logits; -1: none is a number.
  bool advance(const Segment& segment, TokenId best);
  /// The step is done. `logits` [V] of the segment's last row, empty if it wanted none; scratch. Returns true
  /// when the task has finished.
  bool advance(const Segment& segment, std::span<float> logits);
  /// Reading has just reached a position of the plan.
  [[nodiscard]] bool checkpoint_due() const;

  /// Tells the consumer that nothing more will come.
  void finish(FinishReason reason, Error error = {});
  [[nodiscard]] bool finished() const { return reason_.has_value(); }
  [[nodiscard]] FinishReason finish_reason() const { return *reason_; }  ///< once finished
  [[nodiscard]] const GenerationUsage& usage() const { return usage_; }

  [[nodiscard]] std::span<const TokenId> prompt() const { return request_.prompt; }
  [[nodiscard]] std::int64_t prompt_tokens() const { return std::ssize(request_.prompt); }
  [[nodiscard]] std::int64_t generated_tokens() const { return std::ssize(generated_); }
  /// Tokens evaluated so far, and which.
  [[nodiscard]] std::int64_t position() const { return sequence_ ? sequence_->length() : 0; }
  [[nodiscard]] std::vector<TokenId> evaluated() const;
  [[nodiscard]] const Sequence& sequence() const { return *sequence_; }
  /// The sequence, for the cache; nothing if the task never began or its state is not to be trusted.
  std::optional<Sequence> take_sequence();

 private:
  void passed(const Segment& segment);
  bool fail_on_logits();
  bool accept(const Sampled& token);
  void note_time(double GenerationUsage::* phase);
  /// Shows the consumer where things stand.
  void publish();

  GenerateRequest request_;
  const LoadedModel& model_;
  std::weak_ptr<Generation> generation_;
  Sampler sampler_;
  std::int64_t max_tokens_ = 0;
  std::optional<Sequence> sequence_;
  std::vector<std::int64_t> plan_;  // ascending
  std::vector<TokenId> generated_;
  GenerationUsage usage_;
  std::optional<FinishReason> reason_;
  Clock::time_point since_ = Clock::now();
  Clock::time_point deadline_ = Clock::time_point::max();
};

}  // namespace lily
