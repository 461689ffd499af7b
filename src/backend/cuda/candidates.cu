// The logits that may matter to a sampler, so that a step need not bring the vocabulary to the host: those
// nearest the largest, found by a histogram of how far below it they lie.
#include "backend/cuda/launch.cuh"
#include "backend/cuda/ptx.cuh"

namespace lily::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBinsAThread = kCandidateBins / kThreads;
constexpr float kBinsALogit = 32.0F;  // of 1,024: the largest and what is up to 32 below
constexpr int kWanted = 192;          // listed if bins end there, else up to kMostCandidates
static_assert(kBinsAThread * kThreads == kCandidateBins && kCandidateBlocks <= kThreads);

__device__ __forceinline__ int bin_of(float x, float largest) {
  const float bin = (largest - x) * kBinsALogit;
  return bin < static_cast<float>(kCandidateBins) ? static_cast<int>(bin) : kCandidateBins;
}

__device__ float row_largest(const CandidateArgs& a, float* shared) {
  if (threadIdx.x < kCandidateBlocks)
    shared[threadIdx.x] = __ldcg(a.largest + blockIdx.y * kCandidateBlocks + threadIdx.x);
  __syncthreads();
  float largest = shared[0];
  for (int i = 1; i < kCandidateBlocks; ++i) largest = fmaxf(largest, shared[i]);
  // ptxas 13.0 puts shared variables that are first used later in this one's place, and no barrier between:
  // found by racecheck, confirmed in the machine code.
  __syncthreads();
  return largest;
}

// grid (kCandidateBlocks, T), here and below: the largest of each block's share, NaN if it has one.
__global__ void __launch_bounds__(kThreads) find_largest(CandidateArgs a) {
  __shared__ float of_warp[kThreads / 32];
  wait_for_previous();
  let_next_start();
  const int block = static_cast<int>(blockIdx.x);
  const float* x = a.logits + blockIdx.y * a.stride;
  float most = -INFINITY;
  bool number = true;
  for (int i = block * kThreads + static_cast<int>(threadIdx.x); i < a.limit;
       i += kCandidateBlocks * kThreads) {
    const float v = __ldcg(x + i);
    number = number && v == v;
    most = fmaxf(most, v);
  }
  if (!number) most = INFINITY;
  for (int d = 16; d > 0; d >>= 1) most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, d));
  if ((threadIdx.x & 31) == 0) of_warp[threadIdx.x >> 5] = most;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (const float v : of_warp) most = fmaxf(most, v);
    a.largest[blockIdx.y * kCandidateBlocks + block] = most;
    if (block == 0) a.out[blockIdx.y].count = 0;
  }
  // A share of the bins, for the next kernel to count in.
  for (int i = block * kThreads + static_cast<int>(threadIdx.x); i < kCandidateBins;
       i += kCandidateBlocks * kThreads)
    a.bins[blockIdx.y * kCandidateBins + i] = 0;
}

__global__ void __launch_bounds__(kThreads) count_bins(CandidateArgs a) {
  __shared__ float shared[kCandidateBlocks];
  __shared__ int bins[kCandidateBins];
  wait_for_previous();
  let_next_start();
  for (int i = static_cast<int>(threadIdx.x); i < kCandidateBins; i += kThreads) bins[i] = 0;
  const float largest = row_largest(a, shared);
  const float* x = a.logits + blockIdx.y * a.stride;
  for (int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x); i < a.limit;
       i += kCandidateBlocks * kThreads) {
    const int bin = bin_of(__ldcg(x + i), largest);
    if (bin < kCandidateBins) atomicAdd(bins + bin, 1);
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kCandidateBins; i += kThreads) {
    if (bins[i] > 0) atomicAdd(a.bins + blockIdx.y * kCandidateBins + i, bins[i]);
  }
}

// The first bin that is not listed: behind the one that completes kWanted, unless that would be too many.
__device__ int first_left_out(const int* bins) {
  __shared__ int sums[kThreads];
  __shared__ int result;
  const int first = static_cast<int>(threadIdx.x) * kBinsAThread;
  int mine[kBinsAThread];
  int total = 0;
  for (int i = 0; i < kBinsAThread; ++i) total += mine[i] = __ldcg(bins + first + i);
  sums[threadIdx.x] = total;
  if (threadIdx.x == 0) result = kCandidateBins;
  __syncthreads();
  for (int d = 1; d < kThreads; d *= 2) {
    const int before = static_cast<int>(threadIdx.x) >= d ? sums[threadIdx.x - d] : 0;
    __syncthreads();
    sums[threadIdx.x] += before;
    __syncthreads();
  }
  int count = sums[threadIdx.x] - total;
  for (int i = 0; i < kBinsAThread; ++i) {
    const int before = count;
    count += mine[i];
    if (before < kWanted && count >= kWanted) result = count <= kMostCandidates ? first + i + 1 : first + i;
  }
  __syncthreads();
  return result;
}

__global__ void __launch_bounds__(kThreads) collect(CandidateArgs a) {
  __shared__ float shared[kCandidateBlocks];
  __shared__ float of_warp[kThreads / 32];
  wait_for_previous();
  let_next_start();
  const float largest = row_largest(a, shared);
  const int end = first_left_out(a.bins + blockIdx.y * kCandidateBins);
  const float* x = a.logits + blockIdx.y * a.stride;
  RowCandidates& out = a.out[blockIdx.y];
  float above = -INFINITY;
  for (int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x); i < a.limit;
       i += kCandidateBlocks * kThreads) {
    const float v = __ldcg(x + i);
    if (bin_of(v, largest) < end) {
      const int at = atomicAdd(&out.count, 1);
      if (at < kMostCandidates) out.list[at] = {i, v};
    } else {
      above = fmaxf(above, v);
    }
  }
  for (int d = 16; d > 0; d >>= 1) above = fmaxf(above, __shfl_xor_sync(0xffffffffU, above, d));
  if ((threadIdx.x & 31) == 0) of_warp[threadIdx.x >> 5] = above;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (const float v : of_warp) above = fmaxf(above, v);
    out.left_out[blockIdx.x] = above;
  }
}

}  // namespace

void list_candidates(const Launch& where, const CandidateArgs& a) {
  const dim3 grid(kCandidateBlocks, static_cast<unsigned>(a.rows));
  launch<find_largest>(where, true, grid, kThreads, 0, a);
  launch<count_bins>(where, true, grid, kThreads, 0, a);
  launch<collect>(where, true, grid, kThreads, 0, a);
}

}  // namespace lily::cuda
