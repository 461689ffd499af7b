#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "engine/checkpoint_plan.h"
#include "model/forward.h"

namespace lily {

Scheduler::Scheduler(LoadedModel& model, const SchedulerOptions& options,
                     std::function<void(const Task&)> on_finished)
    : model_(model),
      options_(options),
      on_finished_(std::move(on_finished)),
      cache_(model.pool(), options.cache_bytes) {}

void Scheduler::admit(std::unique_ptr<Task> task) {
  if (task->exhausted()) {
    task->finish(FinishReason::kLength);
    return retire(*task);
  }
  auto match = start(*task);
  if (!match.ok()) {
    task->finish(FinishReason::kError, std::move(match).error());
    return retire(*task);
  }
  const std::int64_t from = match->sequence->length();
  task->begin(std::move(*match->sequence),
              checkpoint_plan(task->prompt(), model_.turn_start(), from, match->shared));
  running_.push_back(std::move(task));
}

// What the cache has of the prompt, or an empty sequence. Slots are enough for all that run; the cache gives
// up its own where it has to.
Result<PrefixCache::Match> Scheduler::start(const Task& task) {
  while (true) {
    auto match = cache_.resume(task.prompt());
    if (match.ok() && match->sequence) return match;
    if (match.ok()) {
      auto empty = Sequence::create(model_.pool());
      if (empty.ok()) {
        match->sequence = std::move(*empty);
        return match;
      }
      match = std::move(empty).error();
    }
    if (match.error().code != ErrorCode::kExhausted || !cache_.evict()) return match;
  }
}

void Scheduler::drop(bool all) {
  const auto now = Task::Clock::now();
  for (const auto& task : running_) {
    const auto reason = all ? FinishReason::kCancelled : task->ended(now);
    if (reason) task->finish(*reason);
  }
  retire_finished();
}

void Scheduler::step() {
  Step step = plan_step();
  if (!step.tasks.empty()) {
    run(step);
    take_turns(step);
  } else if (!step.stalled.empty()) {
    Task& least = **std::ranges::min_element(step.stalled, {}, &Task::position);
    least.finish(FinishReason::kError, std::move(step.stall));
  }
  retire_finished();
}

Scheduler::Step Scheduler::plan_step() {
  Step step;
  const bool decoding = std::ranges::any_of(running_, [](const auto& task) { return !task->prefilling(); });
  std::int64_t budget = decoding ? kPrefillGrid : options_.prefill_rows;
  for (const auto& task : running_) {
    if (!task->prefilling()) {
      add(step, *task, 1);
    } else if (const std::int64_t rows = task->prefill_rows(budget); rows > 0) {
      budget -= rows;
      add(step, *task, rows);
    }
  }
  return step;
}

void Scheduler::add(Step& step, Task& task, std::int64_t rows) {
  auto segment = task.next_segment(rows);
  while (!segment.ok() && segment.error().code == ErrorCode::kExhausted && cache_.evict()) {
    segment = task.next_segment(rows);
  }
  if (segment.ok()) {
    step.batch.segments.push_back(*segment);
    step.tasks.push_back(&task);
  } else {
    step.stalled.push_back(&task);
    step.stall = std::move(segment).error();
  }
}

// Where logits lie far from the host, as little of them as the step's tasks need.
Result<void> Scheduler::forward_step(const Step& step) {
  Backend& backend = model_.backend();
  const auto vocab = static_cast<std::size_t>(model_.shapes().vocab);
  const auto wanted = static_cast<std::size_t>(step.batch.logits_rows());
  best_.clear();
  candidates_.clear();
  if (backend.chooses() && std::ranges::all_of(step.tasks, &Task::takes_best)) {
    best_.resize(wanted);
    return forward_greedy(backend, model_.weights(), step.batch, best_, model_.vocab_end());
  }
  if (std::ssize(step.tasks) <= backend.candidate_rows() &&
      std::ranges::all_of(step.tasks, &Task::takes_candidates)) {
    candidates_.resize(wanted);
    return forward_candidates(backend, model_.weights(), step.batch, candidates_, model_.vocab_end());
  }
  logits_.resize(wanted * vocab);
  return forward(backend, model_.weights(), step.batch, logits_);
}

void Scheduler::advance(Task& task, const Segment& segment, std::size_t row) {
  const auto vocab = static_cast<std::size_t>(model_.shapes().vocab);
  if (!best_.empty()) {
    task.advance(segment, best_[row]);
  } else if (candidates_.empty()) {
    task.advance(segment, std::span(logits_).subspan(row * vocab, vocab));
  } else if (const auto chosen = task.choose(candidates_[row])) {
    task.advance(segment, *chosen);
  } else {
    logits_.resize(vocab);
    model_.backend().read_logits(static_cast<std::int64_t>(row), logits_);
    task.advance(segment, std::span(logits_));
  }
}

void Scheduler::run(Step& step) {
  const auto done = forward_step(step);
  ++work_.steps;
  if (!done.ok()) log::error("step of {} rows failed: {}", step.batch.rows(), done.error().message);
  for (std::size_t i = 0, row = 0; i < step.tasks.size(); ++i) {
    Task& task = *step.tasks[i];
    const Segment& segment = step.batch.segments[i];
    if (!done.ok()) {
      task.finish(FinishReason::kError, done.error());
      continue;
    }
    const bool sampled = segment.logits == Logits::kLast;
    if (!sampled) {
      task.advance(segment, std::span<float>());
    } else {
      advance(task, segment, row++);
    }
    work_.prompt_tokens += segment.phase == Phase::kPrefill ? segment.rows() : 0;
    work_.generated_tokens += sampled ? 1 : 0;
    if (segment.phase == Phase::kPrefill && task.checkpoint_due()) {
      cache_.keep(task.evaluated(), task.sequence());
    }
  }
}

// Whose prompt has had a chunk goes behind the others.
void Scheduler::take_turns(const Step& step) {
  const auto had_a_turn = [&](const std::unique_ptr<Task>& task) {
    return std::ranges::find(step.tasks, task.get()) != step.tasks.end();
  };
  std::ranges::stable_partition(running_, std::not_fn(had_a_turn));
}

void Scheduler::retire_finished() {
  std::erase_if(running_, [&](const std::unique_ptr<Task>& task) {
    if (!task->finished()) return false;
    retire(*task);
    return true;
  });
}

// The state of an answer is kept for the turn after it. A sequence shorter than the grid is not worth a slot.
void Scheduler::retire(Task& task) {
  if (task.position() >= kPrefillGrid) {
    const auto tokens = task.evaluated();
    if (auto sequence = task.take_sequence()) cache_.insert(tokens, std::move(*sequence));
  }
  on_finished_(task);
}

}  // namespace lily
