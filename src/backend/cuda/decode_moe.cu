// The mixture of experts for single rows: router and shared expert's first half, then the chosen experts'
// first halves, then all second halves with the weights and the residual.
//
// Every block of the second and third kernel chooses the experts for itself from the logits: that costs less
// than another kernel. The first kernel lets its successor start only once the residual is complete, so the
// second may read the residual, and the third the logits, before they wait.
#include "backend/cuda/choose_experts.cuh"
#include "backend/cuda/gemv.cuh"
#include "backend/cuda/launch.cuh"

namespace lily::cuda {
namespace {

struct Choice {
  int expert[kMaxExpertsPerToken];
  float weight[kMaxExpertsPerToken];  // softmax over the chosen
};

/// By one warp, from logit(expert).
template <class Logit>
__device__ void choose(Logit&& logit, int experts, int k, Choice& choice) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const Chosen chosen = choose_experts(logit, experts, k);
  if (lane < k) {
    choice.expert[lane] = chosen.expert;
    choice.weight[lane] = chosen.weight;
  }
}

// Blocks [0, router_blocks) compute logits, the others the shared expert's gated product.
template <int kTokens>
__global__ void __launch_bounds__(kGemvThreads, kTokens > 4 ? 1 : 2)
    route_and_share(MoeDecodeArgs a, int router_blocks) {
  LILY_DYNAMIC_SHARED(memory);
  using Router = Products<kTokens, 8, false>;
  using Shared = Products<kTokens, 8, true>;
  __shared__ float partial[Router::kPartialFloats];
  __shared__ float inverse_rms[kTokens];
  const Digits digits = digits_at<kTokens>(memory, a.router.groups);
  const int block = static_cast<int>(blockIdx.x);
  const bool routes = block < router_blocks;
  Router router(a.router, 0, block, router_blocks);
  Shared shared(a.shared_in, 0, block - router_blocks, static_cast<int>(gridDim.x) - router_blocks);
  if (routes) {
    router.prefetch();
    router.prefetch_more();
  } else {
    shared.prefetch();
    shared.prefetch_more();
  }
  const int hidden = a.router.inputs();
  const EarlyGain gain(a.gain, hidden);
  wait_for_previous();
  let_next_start();

  const int first = static_cast<int>(blockIdx.y) * kTokens;
  const float* rows[kTokens];
  for (int t = 0; t < kTokens; ++t)
    rows[t] = first + t < a.rows ? a.residual + static_cast<std::int64_t>(first + t) * hidden : nullptr;
  normed_digits<kTokens>(digits, rows, a.gain, gain, hidden, a.eps, inverse_rms);
  if (routes) {
    router.run(digits, partial, [&](int unit, int row, int token, float value) {
      const int channel = unit_channel(unit, row);
      if (first + token < a.rows && channel < a.logits_stride)
        a.logits[(first + token) * a.logits_stride + channel] = value * inverse_rms[token];
    });
  } else {
    const int width = a.shared_in.channels / 2;
    shared.run(digits, partial, [&](int unit, int row, int token, float gate, float up) {
      if (first + token < a.rows)
        a.shared[static_cast<std::int64_t>(first + token) * width + unit_column(unit, row)] =
            silu(gate * inverse_rms[token]) * (up * inverse_rms[token]);
    });
  }
}

// grid (columns / 32, K, T)
__global__ void __launch_bounds__(kGemvThreads, 2) expand_experts(MoeDecodeArgs a) {
  LILY_DYNAMIC_SHARED(memory);
  using Experts = Products<1, 4, true>;
  __shared__ float partial[Experts::kPartialFloats];
  __shared__ float inverse_rms[1];
  __shared__ Choice choice;
  const int slot = static_cast<int>(blockIdx.y);
  const int row = static_cast<int>(blockIdx.z);
  const int hidden = a.experts_in.inputs();
  const Digits digits = digits_at<1>(memory, a.experts_in.groups);
  const float* const rows[1] = {a.residual + static_cast<std::int64_t>(row) * hidden};
  normed_digits<1>(digits, rows, a.gain, EarlyGain(a.gain, hidden), hidden, a.eps, inverse_rms);
  wait_for_previous();
  let_next_start();
  if (threadIdx.x < 32) {
    const float* logits = a.logits + static_cast<std::int64_t>(row) * a.logits_stride;
    choose([&](int expert) { return __ldcg(logits + expert); }, a.experts, a.experts_per_token, choice);
  }
  __syncthreads();

  Experts experts(a.experts_in, choice.expert[slot], static_cast<int>(blockIdx.x),
                  static_cast<int>(gridDim.x));
  experts.prefetch();
  const int width = a.experts_in.channels / 2;
  float* out = a.expanded + (static_cast<std::int64_t>(row) * a.experts_per_token + slot) * width;
  experts.run(digits, partial, [&](int unit, int r, int /*token*/, float gate, float up) {
    out[unit_column(unit, r)] = silu(gate * inverse_rms[0]) * (up * inverse_rms[0]);
  });
}

/// One step of one expert's (or the shared expert's) second matrix: where it lies, and its inputs' group,
/// slots side by side.
struct Item {
  const std::uint8_t* block;
  int group;
};

__device__ Item item_at(const MoeDecodeArgs& a, const Choice& choice, int unit, int index) {
  const int steps = a.experts_out.steps();
  const int slot = index / steps;
  const bool routed = slot < a.experts_per_token;
  const int step = routed ? index - slot * steps : index - a.experts_per_token * steps;
  const int groups = routed ? a.experts_out.groups : a.shared_out.groups;
  const std::uint8_t* tile =
      routed ? a.experts_out.tile(choice.expert[slot], unit >> 4) : a.shared_out.tile(0, unit >> 4);
  const int first = (routed ? slot : a.experts_per_token) * a.experts_out.groups;
  return {tile + static_cast<std::int64_t>(step) * kBlockBytes,
          first + (step < groups ? step : step - groups)};
}

/// What contract_experts keeps in dynamic shared memory. The chosen experts' inputs and the shared one's lie
/// side by side.
struct Contraction {
  int groups;  ///< of 64 inputs
  int count;   ///< items
  float* inputs;
  float* logits;
  Digits digits;
  Item* items;
  float* weight;  ///< of a group: its expert's

  LILY_HD static int groups_of(const MoeDecodeArgs& a) {
    return a.experts_per_token * a.experts_out.groups + a.shared_out.groups;
  }
  LILY_HD static int items_of(const MoeDecodeArgs& a) {
    return a.experts_per_token * a.experts_out.steps() + a.shared_out.steps();
  }
  LILY_HD static int bytes(const MoeDecodeArgs& a) {
    return groups_of(a) * (kGroup * 4 + 4) + a.logits_stride * 4 +
           static_cast<int>(digits_bytes(groups_of(a), 1)) + items_of(a) * static_cast<int>(sizeof(Item));
  }
  __device__ Contraction(const MoeDecodeArgs& a, std::uint8_t* memory)
      : groups(groups_of(a)), count(items_of(a)) {
    inputs = reinterpret_cast<float*>(memory);
    logits = inputs + groups * kGroup;
    auto* rest = reinterpret_cast<std::uint8_t*>(logits + a.logits_stride);
    digits = digits_at<1>(rest, groups);
    items = reinterpret_cast<Item*>(rest + digits_bytes(groups, 1));
    weight = reinterpret_cast<float*>(items + count);
  }
};

// From the logits: the items of unit `unit`, and every group's weight. Ends with a barrier.
__device__ void list_items(const MoeDecodeArgs& a, const Contraction& c, int unit) {
  __shared__ Choice choice;
  if (threadIdx.x < 32)
    choose([&](int expert) { return c.logits[expert]; }, a.experts, a.experts_per_token, choice);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < c.count; i += kGemvThreads)
    c.items[i] = item_at(a, choice, unit, i);
  for (int i = static_cast<int>(threadIdx.x); i < c.groups; i += kGemvThreads) {
    const int slot = i / a.experts_out.groups;
    c.weight[i] = slot < a.experts_per_token ? choice.weight[slot] : sigmoid(c.logits[a.shared_gate]);
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
  BlockCopy rows(&barrier);
  rows.init();
  rows.expect(a.logits_stride * 4);
  rows.copy(c.logits, a.logits + static_cast<std::int64_t>(row) * a.logits_stride, a.logits_stride * 4);
  __syncthreads();
  rows.wait();
  list_items(a, c, unit);

  constexpr int kLoads = 5;  // of the 35B's 72 items all that a warp takes
  UnitLoads<kLoads> loads;
  const auto load = [&](int slot, int index) {
    if (index < c.count) loads.load(slot, UnitPointers(c.items[index].block, unit, 0), 0);
  };
#pragma unroll
  for (int slot = 0; slot < kLoads; ++slot) load(slot, warp + slot * kGemvWarps);
  float* x = a.residual + static_cast<std::int64_t>(row) * a.experts_out.channels +
             unit_channel(unit, static_cast<int>(threadIdx.x));
  wait_for_previous();
  let_next_start();
  const int routed = a.experts_per_token * a.experts_out.inputs();
  const int shared = a.shared_out.inputs();
  rows.expect((routed + shared) * 4);
  rows.copy(c.inputs, a.expanded + static_cast<std::int64_t>(row) * routed, routed * 4);
  rows.copy(c.inputs + routed, a.shared + static_cast<std::int64_t>(row) * shared, shared * 4);
  const float before = threadIdx.x < kUnitRows ? __ldcg(x) : 0.0F;
  rows.wait();
  // 1,152 quads in the 35B: three a thread.
  put_all_digits<1, 3>(
      c.digits, c.groups * 16, 0,
      [&](int quad, bool valid) { return valid ? quad_of(c.inputs, quad) : make_float4(0, 0, 0, 0); },
      [&](int quad, float4 value) -> Weighted {
        return {value, quad < c.groups * 16 ? c.weight[quad >> 4] : 0.0F};
      });
  __syncthreads();

  UnitSums<1> sums;
  for (int index = warp; index < c.count; index += kLoads * kGemvWarps) {
#pragma unroll
    for (int slot = 0; slot < kLoads; ++slot) {
      const int here = index + slot * kGemvWarps;
      if (here < c.count) {
        add_step<1>(sums, loads.codes[slot], loads.affine[slot], LaneDigits<1>(c.digits, c.items[here].group),
                    0);
      }
      load(slot, here + kLoads * kGemvWarps);
    }
  }
  if ((lane & 3) == 0) {
    partial[warp * kUnitRows + (lane >> 2)] = sums.low[0];
    partial[warp * kUnitRows + (lane >> 2) + 8] = sums.high[0];
  }
  __syncthreads();
  if (threadIdx.x < kUnitRows) {
    float sum = 0;
    for (int w = 0; w < kGemvWarps; ++w) sum += partial[w * kUnitRows + static_cast<int>(threadIdx.x)];
    *x = before + sum * (1.0F / kSumScale);
  }
}

template <int kTokens>
void launch_route(const Launch& where, const MoeDecodeArgs& a) {
  const int router_blocks = a.router.pairs();
  const dim3 grid(static_cast<unsigned>(router_blocks + a.shared_in.pairs()),
                  static_cast<unsigned>((a.rows + kTokens - 1) / kTokens));
  launch<route_and_share<kTokens>>(where, true, grid, kGemvThreads, digits_bytes(a.router.groups, kTokens), a,
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
  launch<expand_experts>(where, true,
                         dim3(static_cast<unsigned>((a.experts_in.pairs() + 1) / 2), experts, rows),
                         kGemvThreads, digits_bytes(a.experts_in.groups, 1), a);
  launch<contract_experts>(where, true, dim3(static_cast<unsigned>(a.experts_out.pairs() * 2), rows),
                           kGemvThreads, static_cast<std::size_t>(Contraction::bytes(a)), a);
}

}  // namespace lily::cuda
