// The grouped product on Hopper's wgmma, transposed: weights are the A operand, dequantised in registers;
// tokens are B, in shared memory with the 128-byte swizzle.
//
// A persistent block takes 256 channels x up to 128 rows at a time, K in steps of 64 (a quantisation group):
// two consumer warpgroups of 2 x 64 channels, four producer warps. Producer warp w loads the stages w, w + 4,
// ...: the weights with one bulk copy, the tokens with 16-byte copies through the row index. A full barrier
// counts the producer and its 32 lanes' copies, an empty one the 8 consumer warps. The description of a tile
// and its row weights ride on the full barrier of its first stage, so blocks need no scheduler barrier.
//
// Measurements and what did not pay: docs/kernels-cuda.md.
#pragma once

#include "backend/cuda/gemm_epilogue.cuh"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/tiles.h"
#include "backend/cuda/wgmma.cuh"

namespace lily::cuda::hopper {

inline constexpr int kMostRows = tile_rows(TileSet::kTall);
inline constexpr int kTokenBytes = kMostRows * 128;
inline constexpr int kStageBytes = kBlockBytes + kTokenBytes;  // tokens first; a multiple of 1,024
inline constexpr int kStages = 8;
inline constexpr int kProducerWarps = 4;  // steps must be a multiple
inline constexpr int kTilesInFlight = 4;
inline constexpr int kBarrierAt = kStages * kStageBytes;
inline constexpr int kTileInfoAt = kBarrierAt + 2 * kStages * 8;        // {height, start, n, channel tile}
inline constexpr int kRowWeightAt = kTileInfoAt + kTilesInFlight * 16;  // [tile in flight][row]
inline constexpr int kRowOffsetAt = kRowWeightAt + kTilesInFlight * kMostRows * 4;  // [producer warp][row]
inline constexpr int kSharedBytes = kRowOffsetAt + kProducerWarps * kMostRows * 4;
inline constexpr int kThreads = 384;
static_assert(kStageBytes % 1024 == 0 && kSharedBytes <= 232448);

/// Where a role stands in the ring of stages.
struct Ring {
  std::uint32_t base, full, empty;
  int stage, phase;
};

// All steps of one tile for a consumer warpgroup. kSteps16: k16 steps in a group of wgmma; two groups are in
// flight, each with its own A registers.
template <GemmOut kOut, int kTokens, int kSteps16>
__device__ __forceinline__ void consume(const GemmArgs& a, Ring& ring, int tile) {
  float sums[2][kTokens / 2];
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) sums[0][i] = sums[1][i] = 0.0F;
  int group = static_cast<int>(threadIdx.x >> 7) - 1;
  int thread = static_cast<int>(threadIdx.x & 127);
  // Opaque, or the address arithmetic of every height is hoisted out of the switch and spills.
  asm volatile("" : "+r"(group), "+r"(thread));
  const int lane = thread & 31;
  const int warp = thread >> 5;
  const int g = lane >> 2;
  const int c = lane & 3;
  const std::uint32_t codes_at = kTokenBytes + group * 4096 + thread * 16;
  const std::uint32_t affine_at = kTokenBytes + kBlockCodes + group * 512 + (warp * 8 + g) * 8;
  constexpr int kUnroll = kSteps16 == 4 ? 2 : 1;  // so that the A buffer's index is a constant
  std::uint32_t weights[2][kSteps16][2][4];       // [buffer][k16 step][bank][register]
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) asm volatile("" : "+f"(sums[0][i]), "+f"(sums[1][i])::"memory");
  int previous = -1;
  const int steps = a.matrix.steps();
  for (int step = 0; step < steps; step += kUnroll) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      wait(ring.full + ring.stage * 8, ring.phase);
      const std::uint32_t stage = ring.base + ring.stage * kStageBytes;
      const uint4 q0 = read16(stage + codes_at);
      const uint4 q1 = read16(stage + codes_at + 2048);
      const uint2 f0 = read8(stage + affine_at);
      const uint2 f1 = read8(stage + affine_at + 256);
      // The copies wrote through the generic proxy, wgmma reads through the asynchronous one.
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      const AffinePair affine0 = twice(f0);
      const AffinePair affine1 = twice(f1);
      const std::uint64_t tokens = swizzled_descriptor(stage);
      const std::uint32_t words0[4] = {q0.x, q0.y, q0.z, q0.w};
      const std::uint32_t words1[4] = {q1.x, q1.y, q1.z, q1.w};
      const int current = ring.stage;
#pragma unroll
      for (int h = 0; h < 4 / kSteps16; ++h) {
        auto& buffer = weights[kSteps16 == 4 ? (u & 1) : (h & 1)];
#pragma unroll
        for (int k = 0; k < kSteps16; ++k) {
          dequantize(buffer[k][0], words0[h * kSteps16 + k], affine0);
          dequantize(buffer[k][1], words1[h * kSteps16 + k], affine1);
        }
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < kSteps16; ++k) {
#pragma unroll
          for (int bank = 0; bank < 2; ++bank)
            Wgmma<kTokens>::multiply(sums[bank], buffer[k][bank], tokens + 2 * (h * kSteps16 + k));
        }
        wgmma_commit();
        if (h == 4 / kSteps16 - 1) {
          if (++ring.stage == kStages) {
            ring.stage = 0;
            ring.phase ^= 1;
          }
        }
        wgmma_wait<1>();  // the group before this one is done: its A registers are free, and its stage
        if (h == 0 && previous >= 0 && lane == 0) arrive(ring.empty + previous * 8);
      }
      previous = current;
    }
  }
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) asm volatile("" : "+f"(sums[0][i]), "+f"(sums[1][i])::"memory");
  if (lane == 0) arrive(ring.empty + previous * 8);

  const uint4 info = read16(ring.base + kTileInfoAt + (tile % kTilesInFlight) * 16);
  const int start = static_cast<int>(info.y);
  const int n = static_cast<int>(info.z);
  const int pair = static_cast<int>(info.w) * 8 + group * 4 + warp;
#pragma unroll
  for (int j = 0; j < kTokens / 8; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int row = j * 8 + c * 2 + e;
      float weight = 1.0F;
      if (kOut == GemmOut::kScaled)
        weight = __uint_as_float(
            read4(ring.base + kRowWeightAt + ((tile % kTilesInFlight) * kMostRows + row) * 4));
      if (row < n)
        store_values<kOut>(
            a, pair, g, start + row, weight,
            {sums[0][4 * j + e], sums[0][4 * j + 2 + e], sums[1][4 * j + e], sums[1][4 * j + 2 + e]});
    }
  }
}

template <GemmOut kOut>
__device__ __forceinline__ void produce(const GemmArgs& a, std::uint32_t base) {
  const std::uint32_t full = base + kBarrierAt;
  const std::uint32_t empty = full + kStages * 8;
  const int channel_tiles = a.matrix.tiles();
  const int steps = a.matrix.steps();
  const int total = *a.tile_count * channel_tiles;
  const int stride = static_cast<int>(gridDim.x);
  const int warp = static_cast<int>(threadIdx.x >> 5);
  const int lane = static_cast<int>(threadIdx.x & 31);
  const std::uint32_t offsets = base + kRowOffsetAt + warp * kMostRows * 4;
  int stage = warp;
  int phase = 1;
  int index = 0;
  for (int t = static_cast<int>(blockIdx.x); t < total + stride; t += stride, ++index) {
    const std::uint32_t info = base + kTileInfoAt + (index % kTilesInFlight) * 16;
    if (t >= total) {  // a tile of height 0 ends the consumers
      if (warp == 0) {
        wait(empty + stage * 8, phase);
        if (lane == 0) {
          write16(info, 0, 0, 0, 0);
          arrive(full + stage * 8);
        }
        arrive_after_copies(full + stage * 8);
      }
      break;
    }
    const Tile tile = a.tiles[t / channel_tiles];
    const int channel_tile = t % channel_tiles;
    const std::uint8_t* weights = a.matrix.tile(tile.expert, channel_tile) + warp * kBlockBytes;
    __syncwarp();  // slower lanes may still read the offsets of the tile before
    for (int r = lane; r < tile.n; r += 32) {
      const int source = a.row_index != nullptr ? a.row_index[tile.start + r] : tile.start + r;
      write4(offsets + r * 4, static_cast<std::uint32_t>(source));
    }
    __syncwarp();
    for (int step = warp; step < steps; step += kProducerWarps) {
      const std::uint32_t at = base + stage * kStageBytes;
      const std::uint32_t barrier = full + stage * 8;
      wait(empty + stage * 8, phase);
      if (kOut == GemmOut::kScaled && step == 0) {
        for (int r = lane; r < tile.n; r += 32)
          write4(base + kRowWeightAt + ((index % kTilesInFlight) * kMostRows + r) * 4,
                 __float_as_uint(a.row_weight[tile.start + r]));
      }
      __syncwarp();
      if (lane == 0) {
        if (step == 0) write16(info, tile.height, tile.start, tile.n, channel_tile);
        arrive_and_expect(barrier, kBlockBytes);
        bulk_copy(at + kTokenBytes, weights, kBlockBytes, barrier);
      }
      __syncwarp();
      weights += kProducerWarps * kBlockBytes;
      const int group = step < a.matrix.groups ? step : step - a.matrix.groups;
      const __nv_bfloat16* x = a.input + group * kGroup + (lane & 7) * 8;
      // Row r, chunk i of 16 bytes lies at chunk i ^ (r % 8).
      const std::uint32_t to = at + (lane >> 3) * 128 + (((lane & 7) ^ (lane >> 3)) << 4);
#pragma unroll 4
      for (int r = lane >> 3; r < tile.n; r += 4) {
        const std::int64_t source = read4(offsets + r * 4);
        copy16((to + (r & ~3) * 128) ^ ((r & 4) << 4), x + source * a.matrix.inputs());
      }
      arrive_after_copies(barrier);
      stage += kProducerWarps;
      if (stage >= kStages) {
        stage -= kStages;
        phase ^= 1;
      }
    }
  }
}

template <GemmOut kOut, TileSet kSet>
__global__ void __launch_bounds__(kThreads, 1) gemm_kernel(const __grid_constant__ GemmArgs a) {
#if __CUDA_ARCH__ == 900
  extern __shared__ __align__(1024) std::uint8_t memory[];
  const std::uint32_t base = shared_address(memory);
  const std::uint32_t full = base + kBarrierAt;
  const std::uint32_t empty = full + kStages * 8;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      init_barrier(full + i * 8, 33);
      init_barrier(empty + i * 8, 8);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    produce<kOut>(a, base);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    Ring ring{base, full, empty, 0, 0};
    for (int tile = 0;; ++tile) {
      wait(full + ring.stage * 8, ring.phase);
      const std::uint32_t height = read4(base + kTileInfoAt + (tile % kTilesInFlight) * 16);
      if (height == 0) break;
#define LILY_HEIGHT(h, steps16)                      \
  case h:                                            \
    consume<kOut, (h) * 16, steps16>(a, ring, tile); \
    break;
      if constexpr (kSet == TileSet::kShort) {
        switch (height) {
          LILY_HEIGHT(1, 4)
          LILY_HEIGHT(2, 4)
          LILY_HEIGHT(4, 4)
        }
      } else {
        switch (height) {
          LILY_HEIGHT(1, 1)
          LILY_HEIGHT(2, 1)
          LILY_HEIGHT(3, 1)
          LILY_HEIGHT(4, 1)
          LILY_HEIGHT(5, 1)
          LILY_HEIGHT(6, 1)
          LILY_HEIGHT(7, 1)
          LILY_HEIGHT(8, 1)
        }
      }
#undef LILY_HEIGHT
    }
  }
#endif
}

template <GemmOut kOut, TileSet kSet>
void launch_set(const Launch& where, const GemmArgs& a) {
  launch<gemm_kernel<kOut, kSet>>(where, false, dim3(static_cast<unsigned>(where.device->multiprocessors)),
                                  kThreads, kSharedBytes, a);
}
template <GemmOut kOut>
void launch_gemm(const Launch& where, const GemmArgs& a) {
  if (a.set == TileSet::kShort) {
    launch_set<kOut, TileSet::kShort>(where, a);
  } else {
    launch_set<kOut, TileSet::kTall>(where, a);
  }
}

}  // namespace lily::cuda::hopper
