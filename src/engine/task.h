// One request on its way through the engine thread: its sequence, how far it is, what it generated.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/sampler.h"
#include "engine/sequence.h"

namespace lily {

class Engine::Task {
 public:
  Task(GenerateRequest request, const LoadedModel& model, const std::shared_ptr<Generation>& generation);

  /// The consumer cancelled or let go of its handle.
  [[nodiscard]] bool cancelled() const;
  /// Gives the task its sequence: from here on it takes part in steps.
  Result<void> start(StatePool& pool);
  [[nodiscard]] bool prefilling() const { return prefilled_ < prompt_tokens(); }
  /// No token fits the context or the limit is used up.
  [[nodiscard]] bool exhausted() const { return generated_tokens() >= max_tokens_; }

  /// This task's part of the next step: the next prompt chunk of at most `chunk` rows, or the last sampled
  /// token.
  Result<Segment> next_segment(std::int64_t chunk);
  /// The step is done. `logits` [V] of the segment's last row, empty if it wanted none; scratch. Returns true
  /// when the task has finished.
  bool advance(const Segment& segment, std::span<float> logits);
  /// Tells the consumer that nothing more will come.
  void finish(FinishReason reason, Error error = {});

  [[nodiscard]] std::int64_t prompt_tokens() const {
    return static_cast<std::int64_t>(request_.prompt.size());
  }
  [[nodiscard]] std::int64_t generated_tokens() const { return static_cast<std::int64_t>(generated_.size()); }

 private:
  using Clock = std::chrono::steady_clock;

  bool accept(const Sampled& token);
  void note_time(double GenerationUsage::* phase);

  GenerateRequest request_;
  const LoadedModel& model_;
  std::weak_ptr<Generation> generation_;
  Sampler sampler_;
  std::int64_t max_tokens_ = 0;
  std::optional<Sequence> sequence_;
  std::int64_t prefilled_ = 0;
  std::vector<TokenId> generated_;
  Clock::time_point since_ = Clock::now();
};

}  // namespace lily
