// The grouped product with mma.sync, for every card from sm_80 on and every shape. Transposed: weights are
// the A operand, straight from their packed place to registers; tokens are B, through shared memory. A block
// takes 128 channels and up to 64 rows; its four warps a pair of units each.
#include "backend/cuda/gemm_epilogue.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/tiles.h"

namespace lily::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kRows = tile_rows(TileSet::kShort);
constexpr int kColumns = kRows / 8;  // n tiles
constexpr int kRowWords =
    kGroup / 2 + 4;  // of a token in shared memory: padded, so that lanes meet no bank twice

__device__ void load_tokens(const GemmArgs& a, const Tile& tile, int group,
                            std::uint32_t (&tokens)[kRows][kRowWords]) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * 8; i += kThreads) {
    const int row = i / 8;
    uint4 v = make_uint4(0, 0, 0, 0);
    if (row < tile.n) {
      const std::int64_t source = a.row_index != nullptr ? a.row_index[tile.start + row] : tile.start + row;
      v = *reinterpret_cast<const uint4*>(a.input + source * a.matrix.inputs() + group * kGroup +
                                          (i % 8) * 8);
    }
    *reinterpret_cast<uint4*>(&tokens[row][(i % 8) * 4]) = v;
  }
}

template <GemmOut kOut>
__global__ void __launch_bounds__(kThreads) gemm_kernel(GemmArgs a) {
  __shared__ std::uint32_t tokens[kRows][kRowWords];
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int warp = static_cast<int>(threadIdx.x >> 5);
  const int g = lane >> 2;
  const int c = lane & 3;
  const int halves = (a.matrix.pairs() + 3) / 4;  // of tiles: four pairs
  const int total = *a.tile_count * halves;
  for (int work = static_cast<int>(blockIdx.x); work < total; work += static_cast<int>(gridDim.x)) {
    const Tile tile = a.tiles[work / halves];
    const int pair = (work % halves) * 4 + warp;
    const std::uint8_t* block = a.matrix.tile(tile.expert, pair >> 3);
    float sums[2][kColumns][4] = {};
    for (int step = 0; step < a.matrix.steps(); ++step) {
      __syncthreads();
      load_tokens(a, tile, step < a.matrix.groups ? step : step - a.matrix.groups, tokens);
      __syncthreads();
      if (pair >= a.matrix.pairs()) continue;
      const std::uint8_t* here = block + static_cast<std::int64_t>(step) * kBlockBytes;
#pragma unroll
      for (int bank = 0; bank < 2; ++bank) {
        const int offset = unit_offset(2 * pair + bank);
        const uint4 codes = load_weights16(here + offset + lane * 16);
        const AffinePair affine = twice(load_weights8(here + kBlockCodes + offset / 8 + g * 8));
        const std::uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
        for (int kk = 0; kk < 4; ++kk) {
          std::uint32_t weights[4];
          dequantize(weights, words[kk], affine);
#pragma unroll
          for (int n = 0; n < kColumns; ++n)
            mma_bf16(sums[bank][n], weights, tokens[n * 8 + g][kk * 8 + c],
                     tokens[n * 8 + g][kk * 8 + 4 + c]);
        }
      }
    }
    if (pair >= a.matrix.pairs()) continue;
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int row = n * 8 + c * 2 + e;
        if (row >= tile.n) continue;
        const float weight = kOut == GemmOut::kScaled ? a.row_weight[tile.start + row] : 1.0F;
        store_values<kOut>(a, pair, g, tile.start + row, weight,
                           {sums[0][n][e], sums[0][n][2 + e], sums[1][n][e], sums[1][n][2 + e]});
      }
    }
  }
}

template <GemmOut kOut>
void launch_gemm(const Launch& where, const GemmArgs& a) {
  const int halves = (a.matrix.pairs() + 3) / 4;
  const std::int64_t work = static_cast<std::int64_t>(a.most_tiles) * halves;
  const int blocks = 6 * where.device->multiprocessors;
  launch<gemm_kernel<kOut>>(where, false, dim3(static_cast<unsigned>(work < blocks ? work : blocks)),
                            kThreads, 0, a);
}

}  // namespace

void gemm(const Launch& where, GemmOut out, const GemmArgs& a) {
  const bool hopper = hopper_gemm_takes(*where.device, a.matrix);
  switch (out) {
    case GemmOut::kStore:
      return hopper ? hopper_gemm_store(where, a) : launch_gemm<GemmOut::kStore>(where, a);
    case GemmOut::kAdd:
      return hopper ? hopper_gemm_add(where, a) : launch_gemm<GemmOut::kAdd>(where, a);
    case GemmOut::kSwiglu:
      return hopper ? hopper_gemm_swiglu(where, a) : launch_gemm<GemmOut::kSwiglu>(where, a);
    case GemmOut::kScaled:
      return hopper ? hopper_gemm_scaled(where, a) : launch_gemm<GemmOut::kScaled>(where, a);
  }
}

}  // namespace lily::cuda
