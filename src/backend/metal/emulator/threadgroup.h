// A running threadgroup as its kernel sees it: who am I, what are my arguments, wait for the others. Included
// by the kernels' own headers (include/metal_stdlib) and by the executor.
#pragma once

#include <cstring>
#include <type_traits>

#include "backend/metal/emulator/kernel.h"

// What the executor itself does is no access of the kernel: the race checker must not see it.
#ifdef __clang__
#pragma clang attribute push(__attribute__((no_sanitize("thread"))), apply_to = function)
#endif

namespace lily::metal::emu {

inline constexpr unsigned kMostThreads = 1024;
inline constexpr unsigned kMostSimdGroups = kMostThreads / kLanes;
inline constexpr unsigned kSharedObjects = 32;
inline constexpr std::size_t kGivenBytes = 64;   ///< that a lane hands to a SIMD-group operation
inline constexpr std::size_t kResultBytes = 16;  ///< that it gets

/// Values cross by the parity of `generation`: a lane is at most one operation ahead.
struct SimdGroup {
  alignas(64) std::byte given[2][kLanes][kGivenBytes];
  alignas(64) std::byte result[2][kLanes][kResultBytes];
  std::uint32_t index = 0;
  std::uint32_t present = 0;            ///< lanes that the threadgroup has
  std::uint32_t arrived = 0;            ///< at the operation at hand
  std::uint32_t ready = 0;              ///< may run
  std::uint32_t generation = 0;         ///< operations done
  std::uint32_t threadgroup_epoch = 0;  ///< SIMD-group barriers passed that order threadgroup memory
  std::uint32_t device_epoch = 0;
  Place place;
  const char* operation = nullptr;
};

struct Threadgroup;

struct Thread {
  enum class State : std::uint8_t { kFresh, kStarted, kDone };
  void* stack_pointer = nullptr;
  std::byte* stack = nullptr;  ///< its top
  Threadgroup* group = nullptr;
  SimdGroup* simd = nullptr;
  std::uint32_t lane = 0;
  std::uint32_t index = 0;
  Size3 position;
  State state = State::kFresh;
  Place waits_at;
  const char* waits_for = "";
};

/// A threadgroup variable, or an argument of a set length.
struct SharedObject {
  const void* key = nullptr;
  std::byte* data = nullptr;
  std::size_t size = 0;
};

struct Threadgroup {
  const Launch* launch = nullptr;
  Size3 position;
  std::uint32_t threads = 0;
  std::uint32_t simd_groups = 0;
  std::uint32_t live = 0;   ///< threads that have not returned
  std::uint32_t ready = 0;  ///< SIMD-groups with a lane that may run
  std::uint32_t at_barrier = 0;
  Place barrier;
  std::uint32_t threadgroup_epoch = 0;  ///< barriers passed that order threadgroup memory
  std::uint32_t device_epoch = 0;
  SharedObject shared[kSharedObjects];
  unsigned shared_count = 0;
  std::size_t shared_used = 0;
};

/// The thread that runs.
extern constinit thread_local Thread* self;

/// Ends the dispatch with this message and the thread's place in the grid.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
/// Lets others run until one of them makes this thread ready.
void wait_for(const char* what, Place at);
void threadgroup_barrier(unsigned flags, Place at);
/// Whether a test has this barrier left out.
bool is_muted(Place at);
/// Memory that the group's threads share, the same for every call with this key.
void* shared_object(const void* key, std::size_t size);

enum : unsigned { kOrdersDevice = 1, kOrdersThreadgroup = 2 };

/// Hands `given` to one combine(simd, parity), which the last lane to arrive runs for all, and returns this
/// lane's result. Every lane of the SIMD-group must come to this same place.
template <class Given, class Out, class Combine>
inline Out meet(const char* operation, Given given, Combine combine, Place at) {
  static_assert(sizeof(Given) <= kGivenBytes && sizeof(Out) <= kResultBytes);
  Thread& me = *self;
  SimdGroup& simd = *me.simd;
  if (simd.arrived == 0) {
    simd.place = at;
    simd.operation = operation;
  } else if (simd.place.line != at.line || simd.place.column != at.column || simd.operation != operation) {
    wait_for(operation, at);  // for ever: the executor reports who waits where
  }
  const unsigned parity = simd.generation & 1U;
  std::memcpy(simd.given[parity][me.lane], &given, sizeof given);
  simd.arrived |= 1U << me.lane;
  if (simd.arrived == simd.present) {
    combine(simd, parity);
    simd.ready |= simd.arrived & ~(1U << me.lane);
    simd.arrived = 0;
    ++simd.generation;
    if (simd.ready != 0) me.group->ready |= 1U << simd.index;
  } else {
    wait_for(operation, at);
  }
  Out out;
  std::memcpy(&out, simd.result[parity][me.lane], sizeof out);
  return out;
}

// Arguments. Each converts itself to what the kernel declares, and checks what is bound against it.

struct BufferArgument {
  unsigned index;
  [[nodiscard]] const Binding& bound(std::size_t size, std::size_t alignment) const {
    const Binding& binding = self->group->launch->buffers[index];
    if (binding.data == nullptr) fail("buffer(%u) is not bound", index);
    if (binding.size < size) fail("buffer(%u) is %zu bytes, its type has %zu", index, binding.size, size);
    if (reinterpret_cast<std::uintptr_t>(binding.data) % alignment != 0) {
      fail("buffer(%u) is not aligned to %zu", index, alignment);
    }
    return binding;
  }
  template <class T>
  operator T*() const {
    return reinterpret_cast<T*>(bound(1, alignof(T)).data);
  }
  template <class T>
  operator T&() const {
    return *reinterpret_cast<T*>(bound(sizeof(T), alignof(T)).data);
  }
};
template <unsigned Index>
inline BufferArgument buffer() {
  static_assert(Index < kBuffers);
  return {Index};
}

struct ThreadgroupArgument {
  unsigned index;
  template <class T>
  operator T*() const {
    const std::size_t& size = self->group->launch->threadgroup_bytes[index];
    if (size == 0) fail("threadgroup(%u) has no length", index);
    return static_cast<T*>(shared_object(&size, size));
  }
};
template <unsigned Index>
inline ThreadgroupArgument threadgroup_argument() {
  static_assert(Index < kThreadgroupArguments);
  return {Index};
}

/// A position or extent, as the scalar or vector that the kernel declares.
struct Position {
  std::uint32_t at[3];
  template <class T>
  operator T() const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(at[0]);
    } else {
      T vector;
      for (unsigned i = 0; i < sizeof(T) / sizeof(vector[0]) && i < 3; ++i) vector[i] = at[i];
      return vector;
    }
  }
};
inline Position position_of(Size3 size) {
  return {{size.x, size.y, size.z}};
}
inline Position thread_position_in_threadgroup() {
  return position_of(self->position);
}
inline Position threadgroup_position_in_grid() {
  return position_of(self->group->position);
}
inline Position threads_per_threadgroup() {
  return position_of(self->group->launch->threads);
}
inline Position dispatch_threads_per_threadgroup() {
  return threads_per_threadgroup();
}
inline Position threadgroups_per_grid() {
  return position_of(self->group->launch->threadgroups);
}
inline Position threads_per_grid() {
  const Launch& l = *self->group->launch;
  return {{l.threadgroups.x * l.threads.x, l.threadgroups.y * l.threads.y, l.threadgroups.z * l.threads.z}};
}
inline Position thread_position_in_grid() {
  const Size3 group = self->group->position;
  const Size3 size = self->group->launch->threads;
  const Size3 at = self->position;
  return {{group.x * size.x + at.x, group.y * size.y + at.y, group.z * size.z + at.z}};
}
inline Position thread_index_in_threadgroup() {
  return {{self->index, 0, 0}};
}
inline Position thread_index_in_simdgroup() {
  return {{self->lane, 0, 0}};
}
inline Position simdgroup_index_in_threadgroup() {
  return {{self->simd->index, 0, 0}};
}
inline Position simdgroups_per_threadgroup() {
  return {{self->group->simd_groups, 0, 0}};
}
inline Position threads_per_simdgroup() {
  return {{kLanes, 0, 0}};
}
inline Position thread_execution_width() {
  return {{kLanes, 0, 0}};
}
inline Position thread_index_in_quadgroup() {
  return {{self->lane & 3U, 0, 0}};
}
inline Position quadgroup_index_in_threadgroup() {
  return {{self->index >> 2U, 0, 0}};
}

template <class T>
inline T function_constant(unsigned index, const char* name) {
  static_assert(sizeof(T) <= sizeof(std::uint32_t));
  const ConstantValue& constant = self->group->launch->constants[index];
  if (!constant.set) fail("function constant %u, %s, is used and not set", index, name);
  T value;
  std::memcpy(&value, &constant.bits, sizeof value);
  return value;
}
inline bool function_constant_is_set(unsigned index) {
  return self->group->launch->constants[index].set;
}

}  // namespace lily::metal::emu

#ifdef __clang__
#pragma clang attribute pop
#endif
