// A pool of worker threads for short, frequent parallel regions (hundreds a token), and how many threads to
// start.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace lily {

/// Physical cores this process may use: the CPU affinity mask with hyper-thread siblings counted once, and
/// not more than a cgroup's CPU quota. At least 1.
[[nodiscard]] int available_cores();

/// A body called on several threads at once, without the allocation a std::function may make. Does not own
/// it.
class ParallelBody {
 public:
  template <class F>
  explicit ParallelBody(F& body)
      : context_(&body), call_([](void* context, int thread) {
          (*static_cast<std::remove_reference_t<F>*>(context))(thread);
        }) {}
  ParallelBody() = default;
  void operator()(int thread) const { call_(context_, thread); }

 private:
  void* context_ = nullptr;
  void (*call_)(void*, int) = nullptr;
};

/// Workers spin for a moment after a region, since the next one usually follows at once, and then sleep: an
/// idle server costs nothing. Regions are started by one thread at a time, which takes part as thread 0.
class ThreadPool {
 public:
  /// `threads` >= 1, the caller included; with 1 nothing is started and bodies run in the caller. `pinned`:
  /// every worker stays on a core of its own, and one core is left for the caller (Linux; elsewhere nothing).
  explicit ThreadPool(int threads, bool pinned = false);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int size() const { return threads_; }

  /// body(thread) once on every thread, 0 <= thread < size(). Returns when all are done.
  template <class F>
  void run(F&& body) {
    run_all(ParallelBody(body));
  }

  /// body(begin, end, thread) over disjoint ranges that cover [0, count), cut at multiples of `grain`. A
  /// thread that is free takes the next range: half of an equal share of what is left, so that ranges are
  /// long as long as there is much to do, and slow or interrupted cores do not keep the others waiting.
  template <class F>
  void parallel_for(std::int64_t count, std::int64_t grain, F&& body) {
    const std::int64_t grains = (count + grain - 1) / grain;
    if (threads_ == 1 || grains <= 1) {
      if (count > 0) body(std::int64_t{0}, count, 0);
      return;
    }
    std::atomic<std::int64_t> next{0};
    run([&](int thread) {
      std::int64_t begin = next.load(std::memory_order_relaxed);
      while (begin < grains) {
        const std::int64_t share = (grains - begin) / (2 * threads_);
        const std::int64_t end = begin + (share > 1 ? share : 1);
        if (!next.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
        body(begin * grain, end * grain < count ? end * grain : count, thread);
        begin = next.load(std::memory_order_relaxed);
      }
    });
  }

  /// body(task, thread) for every task in [0, count), each taken by whichever thread is free: for tasks of
  /// unequal cost. The order in which tasks start is ascending.
  template <class F>
  void parallel_tasks(std::int64_t count, F&& body) {
    if (threads_ == 1 || count <= 1) {
      for (std::int64_t task = 0; task < count; ++task) body(task, 0);
      return;
    }
    std::atomic<std::int64_t> next{0};
    run([&](int thread) {
      for (;;) {
        const std::int64_t task = next.fetch_add(1, std::memory_order_relaxed);
        if (task >= count) return;
        body(task, thread);
      }
    });
  }

 private:
  void run_all(ParallelBody body);
  void work(int thread);
  bool await_region(std::uint64_t seen);

  const int threads_;
  std::vector<std::thread> workers_;
  // The region being run: published by the release store of region_, read after the acquire load of it.
  ParallelBody body_;
  alignas(64) std::atomic<std::uint64_t> region_{0};
  alignas(64) std::atomic<int> running_{0};
  std::atomic<bool> stop_{false};
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace lily
