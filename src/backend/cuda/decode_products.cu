// Decoding's dense products: in-projection, out-projection, router and head.
#include "backend/cuda/gemv.cuh"
#include "backend/cuda/launch.cuh"

namespace lily::cuda {
namespace {

// norm(residual) times the matrix, kTokens rows a block.
template <int kTokens, int kSplits, int kRounds, Parts kParts>
__global__ void __launch_bounds__(kGemvThreads, kTokens > 4 ? 1 : 2) normed_product(NormedProductArgs a) {
  LILY_DYNAMIC_SHARED(memory);
  using Matrix = Products<kTokens, kSplits, false, 4, kRounds, kParts>;
  __shared__ float partial[Matrix::kPartialFloats];
  __shared__ float inverse_rms[kTokens];
  __shared__ std::uint64_t barrier;
  const DigitRows digits{memory, a.matrix.groups};
  Matrix products(a.matrix, 0, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
  products.prefetch();
  products.prefetch_more();
  BlockCopy copy(&barrier);
  copy.init();
  __syncthreads();
  wait_for_previous();
  let_next_start();

  const int first = static_cast<int>(blockIdx.y) * kTokens;
  if (a.normed != nullptr) {
    fetch_digits<kTokens>(copy, digits, a.normed, first, a.rows);
    copy.wait();
  } else {
    const auto row = [&](int i) {
      const int source = a.row_index != nullptr ? a.row_index[first + i] : first + i;
      return a.residual + static_cast<std::int64_t>(source) * a.matrix.inputs();
    };
    put_normed_rows<kTokens, kParts>(digits, a.rows - first, row, a.gain);
    __syncthreads();
  }
  find_inverse_rms<kTokens>(digits, a.eps, inverse_rms);
  products.run(digits, partial, [&](int unit, int row, int token, float value) {
    const int channel = unit_channel(unit, row);
    if (channel < a.out_limit && first + token < a.rows)
      a.out[(first + token) * a.out_stride + channel] = value * inverse_rms[token];
  });
}

template <int kTokens, int kSplits, int kRounds, Parts kParts = Parts::kUnits>
void launch_normed(const Launch& where, const NormedProductArgs& a, int most_blocks) {
  constexpr int kUnits = Products<kTokens, kSplits, false, 4, kRounds>::kBlockUnits;
  const int blocks = (a.matrix.pairs() * 2 + kUnits - 1) / kUnits;
  const dim3 grid(static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks),
                  static_cast<unsigned>((a.rows + kTokens - 1) / kTokens));
  const auto shared = static_cast<std::size_t>(kTokens * digits_bytes(a.matrix.groups));
  launch<normed_product<kTokens, kSplits, kRounds, kParts>>(where, true, grid, kGemvThreads,
                                                            spread(where, grid, shared), a);
}

template <int kSplits, int kRounds>
void by_rows(const Launch& where, const NormedProductArgs& a, int most_blocks) {
  const int most = most_digit_rows(*where.device, a.matrix.groups);
  if (a.rows <= 1 || most < 4) return launch_normed<1, kSplits, kRounds>(where, a, most_blocks);
  if (a.rows <= 4 || most < 8) return launch_normed<4, kSplits, kRounds>(where, a, most_blocks);
  launch_normed<8, kSplits, kRounds>(where, a, most_blocks);
}

// Each head of 128 inputs divided by its RMS: a factor of its digits.
template <int kTokens>
__device__ void norm_heads(const DigitRows& d, float eps) {
  constexpr int kHeadSquares = kLinearDim / kGroup * 4;
  static_assert(kHeadSquares == 8);
  for (int i = static_cast<int>(threadIdx.x); i < kTokens * d.groups * 4; i += kGemvThreads) {
    const Digits row = d.row(kTokens == 1 ? 0 : i / (d.groups * 4));
    const int part = kTokens == 1 ? i : i % (d.groups * 4);
    const auto* squares = reinterpret_cast<const float4*>(row.squares) + part / kHeadSquares * 2;
    const float4 x = squares[0];
    const float4 y = squares[1];
    const float square = ((x.x + x.y) + (x.z + x.w)) + ((y.x + y.y) + (y.z + y.w));
    const float factor = rsqrtf(square / static_cast<float>(kLinearDim) + eps);
    row.affine[part] = make_float2(row.affine[part].x * factor, row.affine[part].y * factor);
  }
  __syncthreads();
}

template <int kTokens, Parts kParts>
__global__ void __launch_bounds__(kGemvThreads, 1) out_product_kernel(OutProductArgs a) {
  LILY_DYNAMIC_SHARED(memory);
  // Two units a block, all steps of 4,096 inputs under way.
  using Out = Products<kTokens, 8, false, 8, 1, kParts>;
  static_assert(Out::kUnits == 2 && Out::kOutputs <= kGemvThreads);
  __shared__ float partial[Out::kPartialFloats];
  __shared__ std::uint64_t barrier;
  const DigitRows digits{memory, a.matrix.groups};
  Out products(a.matrix, 0, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
  products.prefetch();
  BlockCopy copy(&barrier);
  copy.init();
  const int first = static_cast<int>(blockIdx.y) * kTokens;
  const auto mine = Out::output(static_cast<int>(threadIdx.x));
  const int row = first + mine.token;
  const int unit = static_cast<int>(blockIdx.x) * Out::kUnits + mine.index;
  float* x = a.residual + static_cast<std::int64_t>(row) * a.matrix.channels + unit_channel(unit, mine.row);
  const bool owner = static_cast<int>(threadIdx.x) < Out::kOutputs && row < a.rows;
  float4 gain = make_float4(0, 0, 0, 0);
  if (owner) gain = load_quad(a.next_gain, unit_quad(unit));
  __syncthreads();
  wait_for_previous();
  let_next_start();

  fetch_digits<kTokens>(copy, digits, a.input, first, a.rows);
  const float before = owner ? __ldcg(x) : 0.0F;
  copy.wait();
  if (a.norm_heads) norm_heads<kTokens>(digits, a.eps);
  products.run(digits, partial, [&](int, int, int, float value) {
    const int groups = a.matrix.channels / kGroup;
    put_unit(x, before + value, a.normed + row * digits_bytes(groups), groups, unit, gain, owner);
  });
}

template <int kTokens, Parts kParts>
void launch_out(const Launch& where, const OutProductArgs& a) {
  const dim3 grid(static_cast<unsigned>(a.matrix.pairs()),  // a block a pair: each thread puts one sum
                  static_cast<unsigned>((a.rows + kTokens - 1) / kTokens));
  launch<out_product_kernel<kTokens, kParts>>(
      where, true, grid, kGemvThreads, static_cast<std::size_t>(kTokens * digits_bytes(a.matrix.groups)), a);
}

template <Parts kParts>
void launch_out_rows(const Launch& where, const OutProductArgs& a) {
  const int most = most_digit_rows(*where.device, a.matrix.groups);
  if (a.rows <= 1 || most < 4) return launch_out<1, kParts>(where, a);
  if (a.rows <= 4 || most < 8) return launch_out<4, kParts>(where, a);
  launch_out<8, kParts>(where, a);
}

}  // namespace

void project(const Launch& where, const NormedProductArgs& a) {
  // Six units a block, two at a time, their inputs over eight warps each: 129 blocks for the 35B's 12,352
  // channels.
  by_rows<8, 3>(where, a, 2 * where.device->multiprocessors);
}
void head(const Launch& where, const NormedProductArgs& a) {
  by_rows<4, 1>(where, a, (a.rows > 4 ? 1 : 2) * where.device->multiprocessors);
}
void router_logits(const Launch& where, const NormedProductArgs& a) {
  // A block takes eight rows and every unit of the router, eight units at a time; of few rows eight units.
  constexpr int kFewRows = 256;
  launch_normed<8, 2, 1, Parts::kWhole>(where, a, a.rows <= kFewRows ? where.device->multiprocessors : 1);
}
void out_product(const Launch& where, const OutProductArgs& a) {
  if (a.gated) return launch_out_rows<Parts::kSteps>(where, a);
  launch_out_rows<Parts::kUnits>(where, a);
}

}  // namespace lily::cuda
