#include "base/threads.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>
#include <string>

#include "base/check.h"

#ifdef __linux__
#include <pthread.h>
#include <sched.h>
#endif
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace lily {
namespace {

// Long enough to bridge the serial work between two regions of a step, short enough that idling is free.
constexpr auto kSpinTime = std::chrono::microseconds(200);
constexpr int kSpinsPerClockRead = 64;

void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

#ifdef __linux__
/// The first line of a small file in /sys, empty if it is not there.
std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// The first CPU of every core in the affinity mask, ascending.
std::vector<int> cores_in_affinity_mask() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return {};
  std::set<std::string> cores;
  std::vector<int> first;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &mask)) continue;
    const std::string topology = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    const std::string siblings = first_line(topology + "thread_siblings_list");
    if (cores.insert(siblings.empty() ? std::to_string(cpu) : siblings).second) first.push_back(cpu);
  }
  return first;
}

void pin_to_cpu(std::thread& thread, int cpu) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(cpu, &mask);
  pthread_setaffinity_np(thread.native_handle(), sizeof(mask),
                         &mask);  // a wish: it runs anywhere else as well
}

/// CPUs the cgroup (v2) may use at once, rounded up; 0 when there is no quota.
int cores_in_cgroup_quota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::int64_t quota = 0;
  std::int64_t period = 0;
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return 0;  // "max 100000": no number
  return static_cast<int>((quota + period - 1) / period);
}
#endif

}  // namespace

int available_cores() {
  int cores = 0;
#ifdef __linux__
  cores = static_cast<int>(cores_in_affinity_mask().size());
  if (const int quota = cores_in_cgroup_quota(); quota > 0 && cores > 0) cores = std::min(cores, quota);
#endif
  if (cores <= 0) cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(cores, 1);
}

ThreadPool::ThreadPool(int threads, bool pinned) : threads_(threads) {
  LILY_CHECK(threads >= 1, "a pool of {} threads", threads);
  workers_.reserve(static_cast<std::size_t>(threads - 1));
  for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this, thread] { work(thread); });
#ifdef __linux__
  const std::vector<int> cores = pinned ? cores_in_affinity_mask() : std::vector<int>();
  for (std::size_t i = 0; i < workers_.size() && i + 1 < cores.size(); ++i)
    pin_to_cpu(workers_[i], cores[i + 1]);
#else
  static_cast<void>(pinned);
#endif
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_.store(true);
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_all(ParallelBody body) {
  if (threads_ == 1) return body(0);
  body_ = body;
  running_.store(threads_ - 1, std::memory_order_relaxed);
  // Sequentially consistent with the sleepers' count: either we see a sleeper, or it sees the new region.
  region_.fetch_add(1);
  if (sleepers_.load() > 0) {
    {
      const std::lock_guard lock(mutex_);
    }
    wake_.notify_all();
  }
  body(0);
  // Workers only ever have a fair share of the same region left, so this wait is short; yielding lets them
  // run when there are fewer cores than threads.
  for (int spins = 0; running_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins % 1024 == 1023) {
      std::this_thread::yield();
    } else {
      cpu_relax();
    }
  }
}

void ThreadPool::work(int thread) {
  for (std::uint64_t seen = 0; await_region(seen); ++seen) {
    body_(thread);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

/// Waits until a region after `seen` has started; false when the pool is being destroyed.
bool ThreadPool::await_region(std::uint64_t seen) {
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  while (!stop_.load(std::memory_order_relaxed)) {
    for (int spin = 0; spin < kSpinsPerClockRead; ++spin) {
      if (region_.load(std::memory_order_acquire) != seen) return true;
      cpu_relax();
    }
    if (std::chrono::steady_clock::now() >= deadline) break;
  }
  std::unique_lock lock(mutex_);
  sleepers_.fetch_add(1);
  wake_.wait(lock, [&] { return region_.load() != seen || stop_.load(); });
  sleepers_.fetch_sub(1);
  return region_.load() != seen;
}

}  // namespace lily
