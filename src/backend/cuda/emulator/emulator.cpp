// Blocks one after the other, their threads as fibers that yield where they would wait.
#include <ucontext.h>
#include <csetjmp>
#include <cstdio>
#include <memory>
#include <vector>

#include "cuda_runtime.h"

namespace lily::cuda::emulator {

dim3 thread_index, block_index, block_size, grid_size;

namespace {

constexpr std::size_t kStackBytes = 128 * 1024;
constexpr std::size_t kSharedBytes = 232448;

struct Warp {
  WarpValues values[2];  // by the parity of `generation`: a thread is at most one operation ahead
  unsigned arrived = 0;
  unsigned alive = 0;
  unsigned generation = 0;
};
struct Fiber {
  ucontext_t start;  // only to enter the stack; later switches are by longjmp, which makes no system call
  std::jmp_buf at;
  std::vector<char> stack = std::vector<char>(kStackBytes);
  bool entered = false;
  bool done = false;
};

std::vector<std::unique_ptr<Fiber>> fibers;
std::vector<Warp> warps;
alignas(1024) std::uint8_t shared_memory[kSharedBytes];
std::jmp_buf scheduler;
unsigned current = 0;
unsigned alive = 0;
unsigned arrived = 0;
unsigned generation = 0;
std::uint64_t progress = 0;  // barriers passed and threads ended
const std::function<void()>* body_of_block = nullptr;

void yield() {
  if (_setjmp(fibers[current]->at) == 0) _longjmp(scheduler, 1);
  thread_index = dim3(current, 0, 0);
}

void release_block() {
  if (alive > 0 && arrived == alive) {
    arrived = 0;
    ++generation;
    ++progress;
  }
}
void release_warp(Warp& warp) {
  if (warp.alive > 0 && warp.arrived == warp.alive) {
    warp.arrived = 0;
    ++warp.generation;
    ++progress;
  }
}

// A fiber runs one thread of block after block.
void fiber_main() {
  for (;;) {
    thread_index = dim3(current, 0, 0);
    (*body_of_block)();
    fibers[current]->done = true;
    --alive;
    --warps[current / 32].alive;
    ++progress;
    release_block();
    release_warp(warps[current / 32]);
    yield();
  }
}

void resume(unsigned thread) {
  current = thread;
  Fiber& fiber = *fibers[thread];
  if (_setjmp(scheduler) != 0) return;
  if (fiber.entered) _longjmp(fiber.at, 1);
  fiber.entered = true;
  setcontext(&fiber.start);
}

void add_fiber() {
  fibers.push_back(std::make_unique<Fiber>());
  Fiber& fiber = *fibers.back();
  getcontext(&fiber.start);
  fiber.start.uc_stack.ss_sp = fiber.stack.data();
  // Tops at equal distances would all fall into the same few sets of the cache.
  fiber.start.uc_stack.ss_size = fiber.stack.size() - fibers.size() % 64 * 832;
  fiber.start.uc_link = nullptr;
  makecontext(&fiber.start, fiber_main, 0);
}

// A warp goes on until all its threads wait for others.
void run_warp(unsigned first, unsigned end) {
  for (std::uint64_t before = progress - 1; progress != before;) {
    before = progress;
    for (unsigned i = first; i < end; ++i) {
      if (!fibers[i]->done) resume(i);
    }
  }
}

void run_block(unsigned threads, std::size_t shared) {
  alive = threads;
  arrived = 0;
  warps.resize((threads + 31) / 32);
  for (Warp& warp : warps) warp.arrived = warp.alive = warp.generation = 0;
  for (unsigned i = 0; i < threads; ++i) {
    ++warps[i / 32].alive;
    fibers[i]->done = false;
  }
  std::memset(shared_memory, 0xff, shared);  // NaN
  while (alive > 0) {
    const std::uint64_t before = progress;
    for (unsigned first = 0; first < threads; first += 32) run_warp(first, std::min(first + 32, threads));
    if (progress == before) {
      std::fprintf(stderr, "emulated kernel: threads wait for each other in block (%u, %u, %u)\n",
                   block_index.x, block_index.y, block_index.z);
      std::abort();
    }
  }
}

}  // namespace

void run(dim3 grid, unsigned threads, std::size_t shared, const std::function<void()>& body) {
  if (shared > kSharedBytes || threads > 1024) std::abort();
  while (fibers.size() < threads) add_fiber();
  body_of_block = &body;
  block_size = dim3(threads);
  grid_size = grid;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        block_index = dim3(x, y, z);
        run_block(threads, shared);
      }
    }
  }
}

void block_barrier() {
  const unsigned mine = generation;
  ++arrived;
  release_block();
  while (generation == mine) yield();
}

const WarpValues& exchange(const std::uint64_t (&mine)[4]) {
  Warp& warp = warps[current / 32];
  const unsigned at = warp.generation;
  std::memcpy(warp.values[at & 1U].lane[current % 32], mine, sizeof(mine));
  ++warp.arrived;
  release_warp(warp);
  while (warp.generation == at) yield();
  return warp.values[at & 1U];
}

std::uint8_t* dynamic_shared() {
  return shared_memory;
}

}  // namespace lily::cuda::emulator
