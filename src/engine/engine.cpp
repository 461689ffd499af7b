#include "engine/engine.h"

#include <algorithm>

#include "base/log.h"
#include "engine/cache_file.h"
#include "engine/scheduler.h"
#include "engine/task.h"

namespace lily {

Engine::Engine() = default;

Result<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options) {
  auto engine = std::unique_ptr<Engine>(new Engine());
  // A step has room for a chunk of the grid beside a token of every other sequence.
  ModelOptions model = options.model;
  if (model.max_rows > 0) model.max_rows = std::max(model.max_rows, kPrefillGrid) + model.slots;
  LILY_TRY(engine->model_, LoadedModel::open(model));
  engine->max_queue_ = options.max_queue;
  engine->timeout_ = options.timeout;
  engine->scheduler_ =
      std::make_unique<Scheduler>(*engine->model_,
                                  SchedulerOptions{.slots = model.slots,
                                                   .prefill_rows = engine->model_->max_rows() - model.slots,
                                                   .cache_bytes = model.cache_bytes},
                                  [raw = engine.get()](const Task& task) {
                                    const std::lock_guard lock(raw->mutex_);
                                    --raw->stats_.running;
                                    raw->count(task);
                                  });
  engine->cache_file_ = options.cache_file;
  engine->load_cache();
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
  if (timeout_.count() > 0 && (request.timeout.count() == 0 || request.timeout > timeout_)) {
    request.timeout = timeout_;
  }
  auto generation = std::make_shared<Generation>();
  auto task = std::make_unique<Task>(std::move(request), *model_, generation);
  {
    const std::lock_guard lock(mutex_);
    if (draining_) return fail(ErrorCode::kCancelled, "the server is shutting down");
    drop_abandoned();  // the engine thread may be in the middle of a long step
    if (static_cast<std::int64_t>(queue_.size()) >= max_queue_) {
      ++stats_.refused;
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

Result<void> Engine::save_cache() {
  if (cache_file_.empty()) return {};
  std::future<Result<void>> saved;
  {
    const std::lock_guard lock(mutex_);
    LILY_CHECK(!save_, "save_cache() by two threads");
    saved = save_.emplace().get_future();
  }
  wake_.notify_all();
  return saved.get();
}

void Engine::do_save() {
  std::optional<std::promise<Result<void>>> save;
  {
    const std::lock_guard lock(mutex_);
    save = std::exchange(save_, std::nullopt);
  }
  if (save) save->set_value(lily::save_cache(cache_file_, *model_, scheduler_->cache()));
}

// Before the thread starts. Without its cache an engine is as good as new, so a bad file is no error.
void Engine::load_cache() {
  if (cache_file_.empty()) return;
  const auto loaded = lily::load_cache(cache_file_, *model_, scheduler_->cache());
  if (loaded.ok() || loaded.error().code == ErrorCode::kNotFound) return;
  std::error_code failed;
  std::filesystem::rename(cache_file_, cache_file_.string() + ".refused", failed);
  log::warn("{}; {}", loaded.error().message,
            failed ? "it cannot be set aside: " + failed.message() : "it is set aside as *.refused");
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
    do_save();
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
  wake_.wait(lock, [&] { return stopping_ || save_ || !queue_.empty() || !scheduler_->idle(); });
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
    count(*task);
    return true;
  });
}

// The caller holds mutex_.
void Engine::count(const Task& task) {
  ++stats_.finished;
  if (observer_) observer_(task.finish_reason(), task.usage());
}

// Shows what only the engine thread may look at.
void Engine::publish() {
  const std::lock_guard lock(mutex_);
  stats_.kv_pages = model_->pool().pages();
  stats_.free_kv_pages = model_->pool().free_pages();
  stats_.cache = scheduler_->cache().stats();
  stats_.work = scheduler_->work();
  if (queue_.empty() && scheduler_->idle()) idle_.notify_all();
}

}  // namespace lily
