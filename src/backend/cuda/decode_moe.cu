// The mixture of experts for single rows: router and shared expert's first half, then the chosen experts'
// first halves, then all second halves with the weights and the residual.
//
// Every block of the second and third kernel chooses the experts for itself from the logits: that costs less
// than another kernel. The first kernel lets its successor start only once the residual is complete, so the
// second may read its digits, and the third the logits, before they wait.
#include "backend/cuda/choose_experts.cuh"
#include "backend/cuda/gemv.cuh"
#include "backend/cuda/launch.cuh"

namespace lily::cuda {
namespace {

static_assert(kGemvThreads == kMaxExperts);  // for choose_by_block()

// Of a row of experts' digits: the chosen ones' inputs, then the shared one's.
LILY_HD int expanded_groups(const MoeDecodeArgs& a) {
  return a.experts_per_token * a.experts_out.groups + a.shared_out.groups;
}
// Products of normed rows [first, first + kTokens). All lanes call put(unit, row of the unit, row, whether
// there is such a row, sums...).
template <int kTokens, class Matrix, class Put>
__device__ __forceinline__ void normed_run(const MoeDecodeArgs& a, std::uint8_t* memory, int first,
                                           Matrix products, Put&& put) {
  __shared__ float partial[Matrix::kPartialFloats];
  __shared__ float inverse_rms[kTokens];
  __shared__ std::uint64_t barrier;
  const DigitRows digits{memory, a.router.groups};
  products.prefetch();
  BlockCopy copy(&barrier);
  copy.init();
  __syncthreads();
  wait_for_previous();
  let_next_start();
  fetch_digits<kTokens>(copy, digits, a.normed, first, a.rows);
  copy.wait();
  find_inverse_rms<kTokens>(digits, a.eps, inverse_rms);
  products.run(digits, partial, [&](int unit, int row, int token, auto... sums) {
    put(unit, row, first + token, first + token < a.rows, sums * inverse_rms[token]...);
  });
}

// Blocks [0, router_blocks) compute logits, a unit each, the others 16 columns of the shared expert's gated
// product: four steps a warp either way.
template <int kTokens>
__global__ void __launch_bounds__(kGemvThreads, kTokens > 4 ? 1 : 2)
    route_and_share(MoeDecodeArgs a, int router_blocks) {
  LILY_DYNAMIC_SHARED(memory);
  const int block = static_cast<int>(blockIdx.x);
  const int first = static_cast<int>(blockIdx.y) * kTokens;
  if (block < router_blocks) {
    normed_run<kTokens>(a, memory, first, Products<kTokens, 16, false>(a.router, 0, block, router_blocks),
                        [&](int unit, int unit_row, int row, bool valid, float logit) {
                          const int channel = unit_channel(unit, unit_row);
                          if (valid) a.logits[row * a.logits_stride + channel] = logit;
                        });
    return;
  }
  const int blocks = static_cast<int>(gridDim.x) - router_blocks;
  const int before = a.experts_per_token * a.experts_out.inputs();
  normed_run<kTokens>(a, memory, first,
                      Products<kTokens, 8, true>(a.shared_in, 0, block - router_blocks, blocks),
                      [&](int unit, int /*unit_row*/, int row, bool valid, float gate, float up) {
                        const int groups = expanded_groups(a);
                        put_columns(silu(gate) * up, a.expanded + row * digits_bytes(groups), groups,
                                    before + unit_column(unit, 0), valid);
                      });
}

// grid (columns / 32, K, T)
__global__ void __launch_bounds__(kGemvThreads, 2) expand_experts(MoeDecodeArgs a) {
  LILY_DYNAMIC_SHARED(memory);
  using Experts = Products<1, 4, true>;
  static_assert(Experts::kOutputs == 32);
  __shared__ float partial[Experts::kPartialFloats];
  __shared__ float inverse_rms[1];
  __shared__ Choice choice;
  __shared__ std::uint64_t barrier;
  const int slot = static_cast<int>(blockIdx.y);
  const int row = static_cast<int>(blockIdx.z);
  const DigitRows digits{memory, a.experts_in.groups};
  BlockCopy copy(&barrier);
  copy.init();
  fetch_digits<1>(copy, digits, a.normed, row, a.rows);
  __syncthreads();
  copy.wait();
  find_inverse_rms<1>(digits, a.eps, inverse_rms);
  const float* logits = a.logits + static_cast<std::int64_t>(row) * a.logits_stride;
  LILY_REHEARSE(pass) {
    if (pass == kInEarnest) {
      wait_for_previous();
      let_next_start();
    }
    choose_by_block([&](int expert) { return __ldcg(logits + expert); }, a.experts, a.experts_per_token,
                    choice);
  }
  Experts experts(a.experts_in, choice.expert[slot], static_cast<int>(blockIdx.x),
                  static_cast<int>(gridDim.x));
  experts.prefetch();
  experts.prefetch_more();
  experts.run(digits, partial, [&](int unit, int, int, float gate, float up) {
    const int groups = expanded_groups(a);
    put_columns(silu(gate * inverse_rms[0]) * (up * inverse_rms[0]), a.expanded + row * digits_bytes(groups),
                groups, slot * a.experts_out.inputs() + unit_column(unit, 0), true);
  });
}

/// One step of one expert's (or the shared expert's) second matrix: where it lies, its inputs' group, slots
/// side by side, and what the expert counts.
struct Item {
  const std::uint8_t* block;
  int group;
  float weight;
};

__device__ Item item_at(const MoeDecodeArgs& a, const Choice& choice, const float* weight, int unit,
                        int index) {
  const int steps = a.experts_out.steps();
  const int slot = index / steps;
  const bool routed = slot < a.experts_per_token;
  const int step = routed ? index - slot * steps : index - a.experts_per_token * steps;
  const int groups = routed ? a.experts_out.groups : a.shared_out.groups;
  const std::uint8_t* tile =
      routed ? a.experts_out.tile(choice.expert[slot], unit >> 4) : a.shared_out.tile(0, unit >> 4);
  const int first = (routed ? slot : a.experts_per_token) * a.experts_out.groups;
  return {.block = tile + static_cast<std::int64_t>(step) * kBlockBytes,
          .group = first + (step < groups ? step : step - groups),
          .weight = weight[routed ? slot : a.experts_per_token]};
}

/// What contract_experts keeps in dynamic shared memory.
struct Contraction {
  static constexpr int kLoads = 5;  ///< items that a warp has under way: in the 35B all of its share of 72
  int count;                        ///< items
  int padded;                       ///< with such as count nothing
  DigitRows digits;
  float* logits;
  Item* items;

  LILY_HD static int items_of(const MoeDecodeArgs& a) {
    return a.experts_per_token * a.experts_out.steps() + a.shared_out.steps();
  }
  LILY_HD static int padded_items_of(const MoeDecodeArgs& a) {
    constexpr int kBatch = kLoads * kGemvWarps;
    return (items_of(a) + kBatch - 1) / kBatch * kBatch;
  }
  LILY_HD static int bytes(const MoeDecodeArgs& a) {
    return static_cast<int>(digits_bytes(expanded_groups(a))) + a.logits_stride * 4 +
           padded_items_of(a) * static_cast<int>(sizeof(Item));
  }
  __device__ Contraction(const MoeDecodeArgs& a, std::uint8_t* memory)

      : count(items_of(a)), padded(padded_items_of(a)), digits{memory, expanded_groups(a)} {
    logits = reinterpret_cast<float*>(memory + digits.stride());
    items = reinterpret_cast<Item*>(logits + a.logits_stride);
  }
};

// From the logits: the items of unit `unit`. Ends with a barrier.
__device__ void list_items(const MoeDecodeArgs& a, const Contraction& c, int unit) {
  __shared__ Choice choice;
  __shared__ float weight[kMaxExpertsPerToken + 1];
  choose_by_block([&](int expert) { return c.logits[expert]; }, a.experts, a.experts_per_token, choice);
  if (threadIdx.x < 32) {
    const int lane = static_cast<int>(threadIdx.x);
    const float mine = lane < a.experts_per_token ? __expf(choice.logit[lane] - choice.logit[0]) : 0.0F;
    const float total = warp_sum(mine);
    if (lane < a.experts_per_token) weight[lane] = mine / total;
    if (lane == 0) weight[a.experts_per_token] = sigmoid(c.logits[a.shared_gate]);
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < c.padded; i += kGemvThreads) {
    c.items[i] = item_at(a, choice, weight, unit, i < c.count ? i : 0);
    if (i >= c.count) c.items[i].weight = 0;
  }
  __syncthreads();
}

// grid (H / 16, T): a block owns a unit of the output.
__global__ void __launch_bounds__(kGemvThreads, 2) contract_experts(MoeDecodeArgs a) {
  LILY_DYNAMIC_SHARED(memory);
  __shared__ float partial[kGemvWarps * kUnitRows];
  __shared__ std::uint64_t barrier;
  const int unit = static_cast<int>(blockIdx.x);
  const int row = static_cast<int>(blockIdx.y);
  const int warp = static_cast<int>(threadIdx.x >> 5);
  const int lane = static_cast<int>(threadIdx.x & 31);
  const Contraction c(a, memory);
  BlockCopy copy(&barrier);
  copy.init();
  copy.expect(a.logits_stride * 4);
  copy.copy(c.logits, a.logits + static_cast<std::int64_t>(row) * a.logits_stride, a.logits_stride * 4);
  __syncthreads();
  copy.wait();
  list_items(a, c, unit);

  UnitLoads<Contraction::kLoads> loads;
  const auto load_batch = [&](int first) {
#pragma unroll
    for (int slot = 0; slot < Contraction::kLoads; ++slot)
      loads.load(slot, UnitPointers(c.items[first + slot * kGemvWarps].block, unit, 0), 0);
  };
  load_batch(warp);
  float* x = a.residual + static_cast<std::int64_t>(row) * a.experts_out.channels +
             unit_channel(unit, lane & (kUnitRows - 1));
  float4 gain = make_float4(0, 0, 0, 0);
  if (warp == 0) gain = load_quad(a.next_gain, unit_quad(unit));
  wait_for_previous();
  let_next_start();
  fetch_digits<1>(copy, c.digits, a.expanded, row, a.rows);
  const float before = warp == 0 ? __ldcg(x) : 0.0F;
  copy.wait();

  UnitSums<1, Parts::kSteps> sums;
  for (int first = warp; first < c.padded; first += Contraction::kLoads * kGemvWarps) {
#pragma unroll
    for (int slot = 0; slot < Contraction::kLoads; ++slot) {
      const Item& item = c.items[first + slot * kGemvWarps];
      add_step(sums, loads.codes[slot], loads.affine[slot],
               LaneDigits<1, Parts::kSteps>(c.digits, item.group), 0, item.weight);
    }
    const int next = first + Contraction::kLoads * kGemvWarps;
    if (next < c.padded) load_batch(next);
  }
  const float2 total = sums.total(0);
  if ((lane & 3) == 0) {
    partial[warp * kUnitRows + (lane >> 2)] = total.x;
    partial[warp * kUnitRows + (lane >> 2) + 8] = total.y;
  }
  __syncthreads();
  if (warp == 0) {
    float sum = 0;
    for (int w = 0; w < kGemvWarps; ++w) sum += partial[w * kUnitRows + (lane & (kUnitRows - 1))];
    const int groups = a.experts_out.channels / kGroup;
    put_unit(x, before + sum * (1.0F / kSumScale), a.normed + row * digits_bytes(groups), groups, unit, gain,
             lane < kUnitRows);
  }
}

template <int kTokens>
void launch_route(const Launch& where, const MoeDecodeArgs& a) {
  const int router_blocks = a.router.pairs() * 2;
  const dim3 grid(static_cast<unsigned>(router_blocks + a.shared_in.pairs()),
                  static_cast<unsigned>((a.rows + kTokens - 1) / kTokens));
  launch<route_and_share<kTokens>>(where, true, grid, kGemvThreads,
                                   static_cast<std::size_t>(kTokens * digits_bytes(a.router.groups)), a,
                                   router_blocks);
}

}  // namespace

void moe_decode(const Launch& where, const MoeDecodeArgs& a) {
  if (a.rows <= 1) {
    launch_route<1>(where, a);
  } else if (a.rows <= 4) {
    launch_route<4>(where, a);
  } else {
    launch_route<8>(where, a);
  }
  const auto rows = static_cast<unsigned>(a.rows);
  const auto experts = static_cast<unsigned>(a.experts_per_token);
  const dim3 first_halves(static_cast<unsigned>((a.experts_in.pairs() + 1) / 2), experts, rows);
  launch<expand_experts>(
      where, true, first_halves, kGemvThreads,
      spread(where, first_halves, static_cast<std::size_t>(digits_bytes(a.experts_in.groups))), a);
  launch<contract_experts>(where, true, dim3(static_cast<unsigned>(a.experts_out.pairs() * 2), rows),
                           kGemvThreads, static_cast<std::size_t>(Contraction::bytes(a)), a);
}

}  // namespace lily::cuda
