#include "engine/engine.h"

#include <algorithm>

#include "base/log.h"
#include "engine/task.h"
#include "model/forward.h"

namespace lily {

Result<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options) {
  auto engine = std::unique_ptr<Engine>(new Engine());
  LILY_TRY(engine->model_, LoadedModel::open(options.model));
  engine->max_queue_ = options.max_queue;
  engine->slots_ = options.model.slots;
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
  const auto is_idle = [&] { return queue_.empty() && running_ == 0; };
  if (idle_.wait_for(lock, deadline, is_idle)) return;
  cancel_all_ = true;
  wake_.notify_all();
  idle_.wait(lock, is_idle);
}

Engine::Stats Engine::stats() const {
  const std::lock_guard lock(mutex_);
  Stats stats = finished_;
  stats.queued = static_cast<std::int64_t>(queue_.size());
  stats.running = running_;
  return stats;
}

void Engine::run() {
  Tasks running;
  while (wait_for_work(running)) {
    admit(running);
    drop_cancelled(running);
    if (!running.empty()) step(running);
    const std::lock_guard lock(mutex_);
    if (running.empty() && queue_.empty()) idle_.notify_all();
  }
  for (const auto& task : running) task->finish(FinishReason::kCancelled);
  const std::lock_guard lock(mutex_);
  for (const auto& task : queue_) task->finish(FinishReason::kCancelled);
  queue_.clear();
}

// False when the engine is being destroyed.
bool Engine::wait_for_work(const Tasks& running) {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [&] { return stopping_ || !queue_.empty() || !running.empty(); });
  return !stopping_;
}

// Moves waiting requests into free slots, first come first served.
void Engine::admit(Tasks& running) {
  while (static_cast<std::int64_t>(running.size()) < slots_) {
    std::unique_ptr<Task> task;
    {
      const std::lock_guard lock(mutex_);
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
      ++running_;
    }
    if (task->cancelled()) {
      retire(*task, FinishReason::kCancelled);
    } else if (task->exhausted()) {
      retire(*task, FinishReason::kLength);
    } else if (auto started = task->start(model_->pool()); !started.ok()) {
      retire(*task, FinishReason::kError, std::move(started).error());
    } else {
      running.push_back(std::move(task));
    }
  }
}

// Waiting requests that nobody waits for any more give up their places. The caller holds mutex_.
void Engine::drop_abandoned() {
  std::erase_if(queue_, [&](const std::unique_ptr<Task>& task) {
    if (!cancel_all_ && !task->cancelled()) return false;
    task->finish(FinishReason::kCancelled);
    ++finished_.finished;
    return true;
  });
}

void Engine::drop_cancelled(Tasks& running) {
  bool all = false;
  {
    const std::lock_guard lock(mutex_);
    all = cancel_all_;
    drop_abandoned();
  }
  std::erase_if(running, [&](const std::unique_ptr<Task>& task) {
    if (!all && !task->cancelled()) return false;
    retire(*task, FinishReason::kCancelled);
    return true;
  });
}

// One step: a token for every decoding task and a chunk of the oldest prompt that is still being read. While
// others decode the chunk is short, so that their answers go on.
void Engine::step(Tasks& running) {
  const bool decoding = std::ranges::any_of(running, [](const auto& task) { return !task->prefilling(); });
  const std::int64_t chunk =
      decoding ? std::min(model_->max_rows() - slots_, kPrefillGrid) : model_->max_rows();
  Batch batch;
  std::vector<Task*> tasks;
  bool has_prefill = false;
  std::erase_if(running, [&](const std::unique_ptr<Task>& task) {
    if (task->prefilling() && (has_prefill || chunk <= 0)) return false;
    has_prefill = has_prefill || task->prefilling();
    auto segment = task->next_segment(chunk);
    if (!segment.ok()) {
      retire(*task, FinishReason::kError, std::move(segment).error());
      return true;
    }
    batch.segments.push_back(*segment);
    tasks.push_back(task.get());
    return false;
  });
  if (batch.segments.empty()) return;

  const std::int64_t vocab = model_->shapes().vocab;
  logits_.resize(static_cast<std::size_t>(batch.logits_rows() * vocab));
  const auto done = forward(model_->backend(), model_->weights(), batch, logits_);
  if (!done.ok()) log::error("step of {} rows failed: {}", batch.rows(), done.error().message);

  std::vector<const Task*> finished;
  for (std::size_t i = 0, row = 0; i < tasks.size(); ++i) {
    if (!done.ok()) {
      tasks[i]->finish(FinishReason::kError, done.error());
      finished.push_back(tasks[i]);
      continue;
    }
    std::span<float> logits;
    if (batch.segments[i].logits == Logits::kLast) {
      logits = std::span(logits_).subspan(row++ * static_cast<std::size_t>(vocab),
                                          static_cast<std::size_t>(vocab));
    }
    if (tasks[i]->advance(batch.segments[i], logits)) finished.push_back(tasks[i]);
  }
  std::erase_if(running, [&](const std::unique_ptr<Task>& task) {
    if (std::ranges::find(finished, task.get()) == finished.end()) return false;
    count(*task);
    return true;
  });
}

void Engine::retire(Task& task, FinishReason reason, Error error) {
  task.finish(reason, std::move(error));
  count(task);
}

void Engine::count(const Task& task) {
  const std::lock_guard lock(mutex_);
  --running_;
  ++finished_.finished;
  finished_.prompt_tokens += task.prompt_tokens();
  finished_.completion_tokens += task.generated_tokens();
}

}  // namespace lily
