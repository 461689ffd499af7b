// What the engine thread runs: the admitted requests, step by step, and the cache between them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "engine/loaded_model.h"
#include "engine/prefix_cache.h"
#include "engine/task.h"

namespace lily {

struct SchedulerOptions {
  std::int64_t slots = 1;         ///< requests that run at once
  std::int64_t prefill_rows = 0;  ///< prompt rows of a step while nothing decodes, at least kPrefillGrid
  std::int64_t cache_bytes = 0;   ///< of the prefix cache
};

class Scheduler {
 public:
  /// `on_finished` is told of every admitted task's end, after its consumer.
  Scheduler(LoadedModel& model, const SchedulerOptions& options,
            std::function<void(const Task&)> on_finished);

  [[nodiscard]] bool idle() const { return running_.empty(); }
  [[nodiscard]] bool has_room() const { return std::ssize(running_) < options_.slots; }
  [[nodiscard]] PrefixCache& cache() { return cache_; }
  [[nodiscard]] const EngineWork& work() const { return work_; }

  /// There is room. The task resumes where the cache allows.
  void admit(std::unique_ptr<Task> task);
  /// Ends what has to end (Task::ended), or everything.
  void drop(bool all);
  /// One step: a token for every task that decodes and chunks of the prompts still being read, in turns.
  /// While anything decodes all chunks together are kPrefillGrid rows, so that answers go on. A task that
  /// finds no KV page waits for those beside it to end; when all wait, the one with the least to lose fails.
  void step();

 private:
  struct Step {
    Batch batch;
    std::vector<Task*> tasks;    // of the batch's segments
    std::vector<Task*> stalled;  // wanted a page and got none
    Error stall;
  };
  using Tasks = std::vector<std::unique_ptr<Task>>;

  Result<PrefixCache::Match> start(const Task& task);
  void add(Step& step, Task& task, std::int64_t rows);
  [[nodiscard]] Step plan_step();
  void run(Step& step);
  Result<void> forward_step(const Step& step);
  /// Gives `task` what the step found for its row among those that wanted logits.
  void advance(Task& task, const Segment& segment, std::size_t row);
  void take_turns(const Step& step);
  void retire_finished();
  void retire(Task& task);

  LoadedModel& model_;
  SchedulerOptions options_;
  std::function<void(const Task&)> on_finished_;
  PrefixCache cache_;
  EngineWork work_;
  Tasks running_;  // prompts still being read stand in the order of their turns
  std::vector<float> logits_;
  std::vector<TokenId> best_;           // in place of logits, where all tasks of a step take the likeliest
  std::vector<Candidates> candidates_;  // or can choose among these
};

}  // namespace lily
