#include "backend/metal/emulator/executor.h"

#include <sys/mman.h>
#include <xmmintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdarg>
#include <cstdio>
#include <map>
#include <mutex>
#include <vector>

// What a call has to save, six registers; then the other stack, and what it had saved.
asm(R"(
.text
.globl lily_emu_switch
.type lily_emu_switch,@function
lily_emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size lily_emu_switch,.-lily_emu_switch
)");
extern "C" void lily_emu_switch(void** save, void* load);

namespace lily::metal::emu {

constinit thread_local Thread* self = nullptr;

namespace {

// Not a multiple of a page: tops at equal distances would all fall into the same few sets of the cache.
constexpr std::size_t kStackDistance = kStackBytes + 4096 + 320;
static_assert(kStackDistance % 16 == 0, "a call finds its stack aligned to 16");
constexpr std::uint64_t kStackEnd = 0x57ac4e4d57ac4e4d;
/// Between threadgroup objects, so that an index past the end of one is in none.
constexpr std::size_t kSharedGap = 64;
constexpr std::size_t kSharedRoom = kThreadgroupBytes + kSharedObjects * (kSharedGap + 16);
// Float subnormals are flushed, as on the GPU; half ones are kept, since F16C ignores these bits.
constexpr unsigned kFlushSubnormals = 0x8040;

void run_fiber();

std::string_view file_name(const char* path) {
  const std::string_view whole = path;
  return whole.substr(whole.rfind('/') + 1);
}

}  // namespace

/// One threadgroup at a time on one thread of the CPU.
class Executor::Worker {
 public:
  explicit Worker(const ExecutorOptions& options)
      : options_(options), simd_(kMostSimdGroups), threads_(kMostThreads), arena_(kSharedRoom) {
    stacks_ = static_cast<std::byte*>(mmap(nullptr, kStackDistance * kMostThreads, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    LILY_CHECK(stacks_ != MAP_FAILED, "no address space for the stacks of {} threads", kMostThreads);
    reclaim_stacks();
  }
  ~Worker() { munmap(stacks_, kStackDistance * kMostThreads); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// The error in it, "" where there is none.
  std::string run(const Launch& launch, Size3 position, std::uint64_t seed) {
    start(launch, position, seed);
    const unsigned control = _mm_getcsr();
    _mm_setcsr(control | kFlushSubnormals);
    current() = this;
    self = pick(simd_[0]);
    enter(*self);
    lily_emu_switch(&main_stack_, self->stack_pointer);
    self = nullptr;
    current() = nullptr;
    _mm_setcsr(control);
    if (!error_.empty()) reclaim_stacks();  // of fibers that will not go on
    return std::move(error_);
  }

  static Worker*& current() {
    static constinit thread_local Worker* worker = nullptr;
    return worker;
  }

  /// The body of every fiber: threads that have not started are run one after the other on the same stack.
  [[noreturn]] void run_threads() {
    for (;;) {
      group_.launch->kernel->run();
      Thread& me = *self;
      me.state = Thread::State::kDone;
      --group_.live;
      Thread* following = pick(*me.simd);
      if (following == nullptr) {
        if (group_.live > 0) explain_standstill();
        leave(me);
      }
      self = following;
      if (following->state == Thread::State::kFresh) {
        following->stack = me.stack;
        following->state = Thread::State::kStarted;
        continue;
      }
      give_back(me);
      lily_emu_switch(&me.stack_pointer, following->stack_pointer);
    }
  }

  void wait_for(const char* what, Place at) {
    Thread& me = *self;
    me.waits_at = at;
    me.waits_for = what;
    Thread* following = pick(*me.simd);
    if (following == nullptr) {
      explain_standstill();
      leave(me);
    }
    if (following == &me) return;
    if (following->state == Thread::State::kFresh) enter(*following);
    self = following;
    lily_emu_switch(&me.stack_pointer, following->stack_pointer);
  }

  void barrier(unsigned flags, Place at) {
    if (is_muted(at)) return;
    if (group_.at_barrier == 0) {
      group_.barrier = at;
    } else if (group_.barrier.line != at.line || group_.barrier.column != at.column) {
      wait_for("another threadgroup_barrier", at);
    }
    if (++group_.at_barrier == group_.threads) {
      group_.at_barrier = 0;
      if ((flags & kOrdersThreadgroup) != 0) ++group_.threadgroup_epoch;
      if ((flags & kOrdersDevice) != 0) ++group_.device_epoch;
      for (unsigned s = 0; s < group_.simd_groups; ++s) simd_[s].ready = simd_[s].present;
      group_.ready = all_simd_groups();
    }
    wait_for("threadgroup_barrier", at);
  }

  [[noreturn]] void fail(const std::string& message) {
    error_ = fmt::format("{} (threadgroup {},{},{} thread {})", message, group_.position.x, group_.position.y,
                         group_.position.z, self->index);
    leave(*self);
  }

  void* shared_object(const void* key, std::size_t size) {
    std::size_t used = size;
    for (unsigned i = 0; i < group_.shared_count; ++i) {
      if (group_.shared[i].key == key) return group_.shared[i].data;
      used += group_.shared[i].size;
    }
    if (used > kThreadgroupBytes) {
      fail(fmt::format("{} bytes of threadgroup memory, the limit is {}", used, kThreadgroupBytes));
    }
    if (group_.shared_count == kSharedObjects) fail("too many threadgroup variables");
    SharedObject& object = group_.shared[group_.shared_count++];
    object = {.key = key, .data = arena_.data() + group_.shared_used, .size = size};
    group_.shared_used += (size + 15) / 16 * 16 + kSharedGap;
    if (options_.observer != nullptr) options_.observer->add_shared(object);
    return object.data;
  }

  [[nodiscard]] bool is_muted(Place at) const {
    if (options_.reached == nullptr && options_.muted == nullptr) return false;
    const BarrierPlace place(file_name(at.file), at.line);
    if (options_.reached != nullptr) options_.reached->insert(place);
    return options_.muted != nullptr && place == *options_.muted;
  }

 private:
  [[nodiscard]] std::uint32_t all_simd_groups() const {
    return group_.simd_groups == 32 ? ~0U : (1U << group_.simd_groups) - 1;
  }

  void start(const Launch& launch, Size3 position, std::uint64_t seed) {
    group_ = Threadgroup{};
    group_.launch = &launch;
    group_.position = position;
    group_.threads = group_.live = static_cast<std::uint32_t>(launch.threads.count());
    group_.simd_groups = (group_.threads + kLanes - 1) / kLanes;
    group_.ready = all_simd_groups();
    random_ = seed * 0x9E3779B97F4A7C15U + 1;
    std::ranges::fill(arena_, std::byte{0xff});  // NaN in every type
    for (std::uint32_t s = 0; s < group_.simd_groups; ++s) start_simd_group(s);
    if (options_.observer != nullptr) options_.observer->begin_group();
  }
  void start_simd_group(std::uint32_t index) {
    SimdGroup& simd = simd_[index];
    const std::uint32_t lanes = std::min(group_.threads - index * kLanes, std::uint32_t{kLanes});
    simd.index = index;
    simd.present = simd.ready = lanes == 32 ? ~0U : (1U << lanes) - 1;
    simd.arrived = simd.generation = simd.threadgroup_epoch = simd.device_epoch = 0;
    const Size3 size = group_.launch->threads;
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      const std::uint32_t i = index * kLanes + lane;
      Thread& thread = threads_[i];
      thread = Thread{};
      thread.group = &group_;
      thread.simd = &simd;
      thread.lane = lane;
      thread.index = i;
      thread.position = {i % size.x, i / size.x % size.y, i / size.x / size.y};
    }
  }

  [[nodiscard]] unsigned pick_bit(std::uint32_t bits) {
    if (!options_.random_order) return static_cast<unsigned>(std::countr_zero(bits));
    random_ ^= random_ << 13U;
    random_ ^= random_ >> 7U;
    random_ ^= random_ << 17U;
    for (auto skip = random_ % static_cast<unsigned>(std::popcount(bits)); skip > 0; --skip) bits &= bits - 1;
    return static_cast<unsigned>(std::countr_zero(bits));
  }
  /// Who runs next, of this SIMD-group as long as one of it can; null where nobody can.
  [[nodiscard]] Thread* pick(const SimdGroup& here) {
    if (group_.ready == 0) return nullptr;
    const bool stay = !options_.random_order && here.ready != 0;
    SimdGroup& simd = simd_[stay ? here.index : pick_bit(group_.ready)];
    const unsigned lane = pick_bit(simd.ready);
    simd.ready &= ~(1U << lane);
    if (simd.ready == 0) group_.ready &= ~(1U << simd.index);
    return &threads_[simd.index * kLanes + lane];
  }

  /// A stack for a thread that has not started, as if it had been switched away from before its first step.
  void enter(Thread& thread) {
    thread.stack = free_stacks_.back();
    free_stacks_.pop_back();
    std::memcpy(thread.stack - kStackBytes, &kStackEnd, sizeof kStackEnd);
    auto** top = reinterpret_cast<void**>(thread.stack);
    *--top = nullptr;  // run_fiber has to find the stack as after a call
    *--top = reinterpret_cast<void*>(&run_fiber);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    thread.stack_pointer = static_cast<void*>(top);
    thread.state = Thread::State::kStarted;
  }
  void give_back(const Thread& thread) {
    std::uint64_t end = 0;
    std::memcpy(&end, thread.stack - kStackBytes, sizeof end);
    LILY_CHECK(end == kStackEnd, "kernel {}: a thread took more than {} bytes of stack",
               group_.launch->kernel->name, kStackBytes);
    free_stacks_.push_back(thread.stack);
  }
  void reclaim_stacks() {
    free_stacks_.clear();
    for (std::size_t i = kMostThreads; i-- > 0;)
      free_stacks_.push_back(stacks_ + kStackDistance * i + kStackBytes);
  }
  [[noreturn]] void leave(Thread& me) {
    give_back(me);
    lily_emu_switch(&me.stack_pointer, main_stack_);
    __builtin_unreachable();
  }

  // Nobody can run and not everybody has returned.
  void explain_standstill() {
    std::map<std::string, int> waiting;
    for (std::uint32_t i = 0; i < group_.threads; ++i) {
      const Thread& t = threads_[i];
      const bool done = t.state == Thread::State::kDone;
      waiting[done ? "have returned"
                   : fmt::format("wait in {} at {}:{}", t.waits_for, file_name(t.waits_at.file),
                                 t.waits_at.line)]++;
    }
    error_ = "divergence:";
    for (const auto& [where, threads] : waiting) error_ += fmt::format(" {} threads {};", threads, where);
    error_ += fmt::format(" threadgroup {},{},{}", group_.position.x, group_.position.y, group_.position.z);
  }

  const ExecutorOptions& options_;
  Threadgroup group_;
  std::vector<SimdGroup> simd_;
  std::vector<Thread> threads_;
  std::vector<std::byte> arena_;  ///< threadgroup memory
  std::byte* stacks_ = nullptr;
  std::vector<std::byte*> free_stacks_;
  void* main_stack_ = nullptr;
  std::uint64_t random_ = 0;
  std::string error_;
};

namespace {
void run_fiber() {
  Executor::Worker::current()->run_threads();
}
}  // namespace

Executor::Executor(const ExecutorOptions& options)
    : pool_(options.observer != nullptr ? 1
            : options.threads > 0       ? options.threads
                                        : available_cores()),
      options_(options) {
  for (int i = 0; i < pool_.size(); ++i) workers_.push_back(std::make_unique<Worker>(options_));
}

Executor::~Executor() = default;

Result<void> Executor::run(const Launch& launch) {
  if (options_.observer != nullptr) options_.observer->begin_launch(launch);
  const std::uint64_t seed = options_.seed * 7919 + ++launches_ * 104729;
  std::mutex mutex;
  std::string first_error;
  pool_.parallel_tasks(static_cast<std::int64_t>(launch.threadgroups.count()),
                       [&](std::int64_t task, int thread) {
                         const auto i = static_cast<std::uint32_t>(task);
                         const Size3 grid = launch.threadgroups;
                         std::string error = workers_[static_cast<std::size_t>(thread)]->run(
                             launch, {i % grid.x, i / grid.x % grid.y, i / grid.x / grid.y}, seed + i);
                         if (error.empty()) return;
                         const std::lock_guard lock(mutex);
                         if (first_error.empty()) first_error = std::move(error);
                       });
  if (first_error.empty()) return {};
  return lily::fail(ErrorCode::kInternal, "kernel {}: {}", launch.kernel->name, first_error);
}

void fail(const char* format, ...) {
  std::array<char, 1024> message{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message.data(), message.size(), format, arguments);
  va_end(arguments);
  Executor::Worker::current()->fail(message.data());
}

void wait_for(const char* what, Place at) {
  Executor::Worker::current()->wait_for(what, at);
}

void threadgroup_barrier(unsigned flags, Place at) {
  Executor::Worker::current()->barrier(flags, at);
}

bool is_muted(Place at) {
  return Executor::Worker::current()->is_muted(at);
}

void* shared_object(const void* key, std::size_t size) {
  return Executor::Worker::current()->shared_object(key, size);
}

}  // namespace lily::metal::emu
