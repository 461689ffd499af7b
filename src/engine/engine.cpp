#include "engine/engine.h"

#include <algorithm>

#include "engine/scheduler.h"
#include "engine/task.h"

namespace lily {

Engine::Engine() = default;

Result<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options) {
  auto engine = std::unique_ptr<Engine>(new Engine());
  // A step has room for a chunk of the grid beside a token of every other sequence.
  ModelOptions model = options.model;
  const std::int64_t prefill_rows = std::max(model.max_rows, kPrefillGrid);
  model.max_rows = prefill_rows + model.slots;
  LILY_TRY(engine->model_, LoadedModel::open(model));
  engine->max_queue_ = options.max_queue;
  engine->scheduler_ = std::make_unique<Scheduler>(
      *engine->model_,
      SchedulerOptions{.slots = model.slots, .prefill_rows = prefill_rows, .cache_bytes = model.cache_bytes},
      [raw = engine.get()](const Task& task) { raw->count(task); });
  engine->publish();
  engine->thread_ = std::thread([raw = engine.get()] { raw->run(); });
  return engine;
}

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Result<void> Engine::check(const GenerateRequest& request) const {
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  if (length == 0) return fail(ErrorCode::kInvalidArgument, "the prompt is empty");
  if (length > model_->max_seq()) {
    return fail(ErrorCode::kInvalidArgument, "the prompt has {} tokens, the context holds {}", length,
                model_->max_seq());
  }
  for (const TokenId id : request.prompt) {
    if (id < 0 || id >= model_->shapes().vocab) {
      return fail(ErrorCode::kInvalidArgument, "token id {}: the vocabulary has ids 0 to {}", id,
                  model_->shapes().vocab - 1);
    }
  }
  return {};
}

Result<std::shared_ptr<Generation>> Engine::submit(GenerateRequest request) {
  LILY_TRY_VOID(check(request));
  auto generation = std::make_shared<Generation>();
  auto task = std::make_unique<Task>(std::move(request), *model_, generation);
  {
    const std::lock_guard lock(mutex_);
    if (draining_) return fail(ErrorCode::kCancelled, "the server is shutting down");
    drop_abandoned();  // the engine thread may be in the middle of a long step
    if (static_cast<std::int64_t>(queue_.size()) >= max_queue_) {
      return fail(ErrorCode::kExhausted, "{} requests are waiting already", queue_.size());
    }
    queue_.push_back(std::move(task));
  }
  wake_.notify_all();
  return generation;
}

void Engine::drain(std::chrono::milliseconds deadline) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  const auto is_idle = [&] { return queue_.empty() && stats_.running == 0; };
  if (idle_.wait_for(lock, deadline, is_idle)) return;
  cancel_all_ = true;
  wake_.notify_all();
  idle_.wait(lock, is_idle);
}

Engine::Stats Engine::stats() const {
  const std::lock_guard lock(mutex_);
  Stats stats = stats_;
  stats.queued = std::ssize(queue_);
  return stats;
}

void Engine::observe(Observer observer) {
  const std::lock_guard lock(mutex_);
  observer_ = std::move(observer);
}

void Engine::run() {
  while (wait_for_work()) {
    admit();
    bool all = false;
    {
      const std::lock_guard lock(mutex_);
      drop_abandoned();
      all = cancel_all_;
    }
    scheduler_->drop(all);
    if (!scheduler_->idle()) scheduler_->step();
    publish();
  }
  scheduler_->drop(/*all=*/true);
  const std::lock_guard lock(mutex_);
  cancel_all_ = true;
  drop_abandoned();
}

// False when the engine is being destroyed.
bool Engine::wait_for_work() {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [&] { return stopping_ || !queue_.empty() || !scheduler_->idle(); });
  return !stopping_;
}

// Moves waiting requests into free slots, first come first served.
void Engine::admit() {
  while (scheduler_->has_room()) {
    std::unique_ptr<Task> task;
    {
      const std::lock_guard lock(mutex_);
      drop_abandoned();
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
      ++stats_.running;
    }
    scheduler_->admit(std::move(task));
  }
}

// Waiting requests that nobody waits for any more, or whose time is up, leave. The caller holds mutex_.
void Engine::drop_abandoned() {
  const auto now = Task::Clock::now();
  std::erase_if(queue_, [&](const std::unique_ptr<Task>& task) {
    const auto reason = cancel_all_ ? FinishReason::kCancelled : task->ended(now);
    if (!reason) return false;
    task->finish(*reason);
    ++stats_.finished;
    return true;
  });
}

void Engine::count(const Task& task) {
  Observer observer;
  {
    const std::lock_guard lock(mutex_);
    --stats_.running;
    ++stats_.finished;
    stats_.prompt_tokens += task.usage().prompt_tokens;
    stats_.cached_tokens += task.usage().cached_tokens;
    stats_.completion_tokens += task.usage().completion_tokens;
    observer = observer_;
  }
  if (observer) observer(task.finish_reason(), task.usage());
}

// Shows what only the engine thread may look at.
void Engine::publish() {
  const std::lock_guard lock(mutex_);
  stats_.kv_pages = model_->pool().pages();
  stats_.free_kv_pages = model_->pool().free_pages();
  stats_.cache = scheduler_->cache().stats();
  if (queue_.empty() && scheduler_->idle()) idle_.notify_all();
}

}  // namespace lily
