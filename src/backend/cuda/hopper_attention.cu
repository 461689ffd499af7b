// Causal attention over a tile of queries on Hopper's wgmma (prefill_attention.cuh says what a tile is).
//
// Two consumer warpgroups of 64 packed rows, one of producers that brings 64 keys at a time into two stages
// each of K and V: rows of 64 elements with the 128-byte swizzle, which serves scores (K: a key a row of B)
// and output (V: a key a row of B transposed) alike. While the scores of a tile of keys become probabilities,
// the output of the tile before is still being computed; the other warpgroup's products fill what remains.
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/prefill_attention.cuh"
#include "backend/cuda/wgmma.cuh"

namespace lily::cuda {
namespace hopper {
namespace {

constexpr int kKeys = 64;
constexpr int kStages = 2;
constexpr int kSlabs = kHeadDim / 64;  // of 64 columns: a swizzled row's worth
constexpr int kQuerySlab = kAttentionTileRows * 128;
constexpr int kKeySlab = kKeys * 128;
constexpr int kStageBytes = kSlabs * kKeySlab;
constexpr int kKeysAt = kSlabs * kQuerySlab;
constexpr int kValuesAt = kKeysAt + kStages * kStageBytes;
constexpr int kBarriersAt =
    kValuesAt + kStages * kStageBytes;  // full K, full V, empty K, empty V of each stage
constexpr int kSharedBytes = kBarriersAt + 4 * kStages * 8;
constexpr int kProducers = 128;
constexpr int kThreads = kProducers + kAttentionThreads;
static_assert(kSharedBytes <= 232448);

// Other cards have empty kernels.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 900
#define LILY_FOR_HOPPER

__device__ __forceinline__ std::uint32_t swizzled(int row, int chunk, int slab_bytes) {
  return static_cast<std::uint32_t>((chunk >> 3) * slab_bytes + row * 128 + (((chunk & 7) ^ (row & 7)) << 4));
}

struct Stages {
  std::uint32_t base;
  int index = 0;  // tiles of keys so far

  __device__ int stage() const { return index % kStages; }
  __device__ int phase() const { return index / kStages & 1; }
  __device__ std::uint32_t at(bool value) const {
    return base + (value ? kValuesAt : kKeysAt) + stage() * kStageBytes;
  }
  __device__ std::uint32_t full(bool value) const {
    return base + kBarriersAt + (value ? kStages : 0) * 8 + stage() * 8;
  }
  __device__ std::uint32_t empty(bool value) const { return full(value) + 2 * kStages * 8; }
};

__device__ __forceinline__ void produce(const AttentionPrefillArgs& a, const AttentionTile& tile,
                                        Stages& stages, int range) {
  const int* pages = a.rows.pages + static_cast<std::int64_t>(tile.segment.table) * a.rows.page_stride;
  const int end = tile.range_end(range);
  const int thread = static_cast<int>(threadIdx.x);
  for (int key = tile.range_begin(range); key < end; key += kKeys, ++stages.index) {
#pragma unroll
    for (int value = 0; value < 2; ++value) {
      wait(stages.empty(value != 0), stages.phase() ^ 1);
      const __nv_bfloat16* rows = cache_row(a.cache, pages, key, value != 0, tile.kv_head);
      const std::uint32_t to = stages.at(value != 0);
#pragma unroll 8
      for (int i = thread; i < kKeys * 32; i += kProducers) {
        const bool valid = key + i / 32 < end;  // else zeros: what lies there may be anything
        copy16_if(valid, to + swizzled(i / 32, i % 32, kKeySlab), rows + (valid ? i * 8 : 0));
      }
      arrive_after_copies(stages.full(value != 0));
    }
  }
}

// Scores of 64 keys, under way.
__device__ __forceinline__ void start_scores(float (&s)[kKeys / 8][4], std::uint32_t queries,
                                             const Stages& stages) {
  wait(stages.full(false), stages.phase());
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // copies wrote through the generic proxy
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
  auto& flat = reinterpret_cast<float(&)[kKeys / 2]>(s);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kHeadDim / 16; ++k) {
    const int in_slab = k % 4 * 32;
    multiply_keys(flat, swizzled_descriptor(queries + k / 4 * kQuerySlab + in_slab),
                  swizzled_descriptor(stages.at(false) + k / 4 * kKeySlab + in_slab));
  }
  wgmma_commit();
}

__device__ __forceinline__ void start_output(float (&o)[kHeadDim / 8][4],
                                             const std::uint32_t (&p)[kKeys / 16][4], const Stages& stages) {
  wait(stages.full(true), stages.phase());
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  auto& flat = reinterpret_cast<float(&)[kHeadDim / 2]>(o);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kKeys / 16; ++k)
    multiply_values(flat, p[k], swizzled_descriptor(stages.at(true) + k * 16 * 128, kKeySlab));
  wgmma_commit();
}

/// The keys of one range against a warpgroup's 64 rows.
struct Consumer {
  const AttentionTile& tile;
  Stages& stages;
  TileOutput<kHeadDim / 8>& x;
  std::uint32_t queries;  ///< in shared memory
  int limit[2];
  int key, end;
  bool first_lane;

  __device__ __forceinline__ Consumer(const AttentionTile& t, Stages& s, TileOutput<kHeadDim / 8>& output,
                                      int range)
      : tile(t), stages(s), x(output), key(t.range_begin(range)), end(t.range_end(range)) {
    const int thread = static_cast<int>(threadIdx.x) - kProducers;
    const int packed = (thread >> 5) * 16 + ((thread & 31) >> 2);
    queries = s.base + (thread >> 7) * 64 * 128;
    limit[0] = t.token(packed);
    limit[1] = t.token(packed + 8);
    first_lane = (thread & 31) == 0;
  }

  __device__ __forceinline__ void run() {
    float s[kKeys / 8][4];
    std::uint32_t p[kKeys / 16][4];
    float shrink[2];
    start_scores(s, queries, stages);
    wgmma_wait<0>();
    to_probabilities(s, shrink);
    pack(s, p);
    for (key += kKeys; key < end; key += kKeys) {
      const Stages before = stages;  // whose values are still to be added
      ++stages.index;
      start_scores(s, queries, stages);
      start_output(x.o, p, before);
      wgmma_wait<1>();  // for the scores; the output goes on
      to_probabilities(s, shrink);
      wgmma_wait<0>();
      if (first_lane) arrive(before.empty(true));
      x.scale(shrink);
      pack(s, p);
    }
    start_output(x.o, p, stages);
    wgmma_wait<0>();
    if (first_lane) arrive(stages.empty(true));
    ++stages.index;
  }

 private:
  __device__ __forceinline__ void to_probabilities(float (&s)[kKeys / 8][4], float (&shrink)[2]) {
    if (first_lane) arrive(stages.empty(false));
    x.softmax.update(s, key, limit, key + kKeys - 1 > tile.first_token, shrink);
  }
  __device__ static __forceinline__ void pack(const float (&s)[kKeys / 8][4],
                                              std::uint32_t (&p)[kKeys / 16][4]) {
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) pack_probabilities(p[k], s[2 * k], s[2 * k + 1]);
  }
};

#endif

template <bool kSplit>
__global__ void __launch_bounds__(kThreads, 1) attend_tile(const __grid_constant__ AttentionPrefillArgs a) {
#ifdef LILY_FOR_HOPPER
  extern __shared__ __align__(1024) std::uint8_t memory[];
  const int z = static_cast<int>(blockIdx.z);
  const AttentionTile tile(a, kSplit ? z / kMostRanges : z);
  int range = kSplit ? z % kMostRanges : 0;
  if (tile.empty || range >= tile.ranges) return;
  Stages stages{shared_address(memory)};
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2 * kStages; ++i) {
      init_barrier(stages.base + kBarriersAt + i * 8, kProducers);
      init_barrier(stages.base + kBarriersAt + (2 * kStages + i) * 8, kAttentionThreads / 32);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  for (int i = static_cast<int>(threadIdx.x); i < kAttentionTileRows * 32; i += kThreads)
    *reinterpret_cast<uint4*>(memory + swizzled(i / 32, i % 32, kQuerySlab)) =
        query_chunk(a, tile, i / 32, i % 32);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x < kProducers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    do {
      produce(a, tile, stages, range);
    } while (!kSplit && ++range < tile.ranges);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int thread = static_cast<int>(threadIdx.x) - kProducers;
    TileOutput<kHeadDim / 8> x;
    do {
      x.clear();
      Consumer(tile, stages, x, range).run();
    } while (end_range<kSplit>(a, tile, x, range++, thread));
  }
#endif
}

}  // namespace
}  // namespace hopper

void hopper_attention(const Launch& where, const AttentionPrefillArgs& a, dim3 grid, bool split) {
  if (split) {
    launch<hopper::attend_tile<true>>(where, false, grid, hopper::kThreads, hopper::kSharedBytes, a);
  } else {
    launch<hopper::attend_tile<false>>(where, false, grid, hopper::kThreads, hopper::kSharedBytes, a);
  }
}

}  // namespace lily::cuda
