// Decoding's dense products: in-projection, out-projection, router and head.
#include "backend/cuda/gemv.cuh"
#include "backend/cuda/launch.cuh"

namespace lily::cuda {
namespace {

// norm(residual) times the matrix, kTokens rows a block.
template <int kTokens, int kSplits>
__global__ void __launch_bounds__(kGemvThreads, kTokens > 4 ? 1 : 2) normed_product(NormedProductArgs a) {
  LILY_DYNAMIC_SHARED(memory);
  __shared__ float partial[Products<kTokens, kSplits, false>::kPartialFloats];
  __shared__ float inverse_rms[kTokens];
  const Digits digits = digits_at<kTokens>(memory, a.matrix.groups);
  Products<kTokens, kSplits, false> products(a.matrix, 0, static_cast<int>(blockIdx.x),
                                             static_cast<int>(gridDim.x));
  products.prefetch();
  products.prefetch_more();
  const int hidden = a.matrix.inputs();
  const EarlyGain gain(a.gain, hidden);
  wait_for_previous();
  let_next_start();

  const int first = static_cast<int>(blockIdx.y) * kTokens;
  const float* rows[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    const int row = first + t;
    rows[t] = nullptr;
    if (row < a.rows) {
      const int source = a.row_index != nullptr ? a.row_index[row] : row;
      rows[t] = a.residual + static_cast<std::int64_t>(source) * hidden;
    }
  }
  normed_digits<kTokens>(digits, rows, a.gain, gain, hidden, a.eps, inverse_rms);
  if (kSplits == 1) __syncthreads();  // there is none before the results
  products.run(digits, partial, [&](int unit, int row, int token, float value) {
    const int channel = unit_channel(unit, row);
    if (channel < a.out_limit && first + token < a.rows)
      a.out[(first + token) * a.out_stride + channel] = value * inverse_rms[token];
  });
}

template <int kTokens, int kSplits>
void launch_normed(const Launch& where, const NormedProductArgs& a, int most_blocks) {
  const std::size_t shared = digits_bytes(a.matrix.groups, kTokens);
  constexpr int kUnits = kGemvWarps / kSplits;
  const int blocks = (a.matrix.pairs() * 2 + kUnits - 1) / kUnits;
  const dim3 grid(static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks),
                  static_cast<unsigned>((a.rows + kTokens - 1) / kTokens));
  launch<normed_product<kTokens, kSplits>>(where, true, grid, kGemvThreads, shared, a);
}

template <int kSplits>
void by_rows(const Launch& where, const NormedProductArgs& a, int most_blocks) {
  if (a.rows <= 1) return launch_normed<1, kSplits>(where, a, most_blocks);
  if (a.rows <= 4) return launch_normed<4, kSplits>(where, a, most_blocks);
  launch_normed<8, kSplits>(where, a, most_blocks);
}

// The mixer's output as digits: attention's as it is, the delta rule's times the RMS factor of its head.
template <int kTokens>
__device__ void output_digits(const Digits& d, const OutProductArgs& a, int first) {
  struct Quad {
    float4 x = make_float4(0, 0, 0, 0);
    float4 squares = make_float4(0, 0, 0, 0);  // of the head's columns
  };
  const int inputs = a.matrix.inputs();
  for (int token = 0; token < kTokens; ++token) {
    const std::int64_t row = first + token;
    put_all_digits<kTokens, 2>(
        d, inputs / 4, token,
        [&](int quad, bool valid) {
          Quad q;
          if (valid && row < a.rows) {
            q.x = load_quad(a.input + row * inputs, quad);
            if (a.squares != nullptr) {
              const int head = quad / (kLinearDim / 4);
              q.squares =
                  __ldcg(reinterpret_cast<const float4*>(a.squares) + row * (inputs / kLinearDim) + head);
            }
          }
          return q;
        },
        [&](int, const Quad& q) -> Weighted {
          if (a.squares == nullptr) return {q.x};
          const float square = q.squares.x + q.squares.y + q.squares.z + q.squares.w;
          return {q.x, rsqrtf(square / static_cast<float>(kLinearDim) + a.eps)};
        });
  }
  __syncthreads();
}

template <int kTokens>
__global__ void __launch_bounds__(kGemvThreads, 1) out_product_kernel(OutProductArgs a) {
  LILY_DYNAMIC_SHARED(memory);
  using Out = Products<kTokens, 8, false, 8>;  // two units a block, all steps of 4,096 inputs under way
  static_assert(Out::kOutputs <= kGemvThreads);
  __shared__ float partial[Out::kPartialFloats];
  const Digits digits = digits_at<kTokens>(memory, a.matrix.groups);
  Out products(a.matrix, 0, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
  products.prefetch();
  const int first = static_cast<int>(blockIdx.y) * kTokens;
  const auto mine = Out::output(static_cast<int>(threadIdx.x));
  const int unit = static_cast<int>(blockIdx.x) * Out::kUnits + mine.index;
  float* x = a.residual + static_cast<std::int64_t>(first + mine.token) * a.matrix.channels +
             unit_channel(unit, mine.row);
  const bool owner = static_cast<int>(threadIdx.x) < Out::kOutputs && first + mine.token < a.rows;
  wait_for_previous();
  let_next_start();

  const float before = owner ? __ldcg(x) : 0.0F;
  output_digits<kTokens>(digits, a, first);
  products.run(digits, partial, [&](int, int, int, float value) {
    if (owner) *x = before + value;
  });
}

template <int kTokens>
void launch_out(const Launch& where, const OutProductArgs& a) {
  const dim3 grid(static_cast<unsigned>(a.matrix.pairs()),  // a block a pair: each thread puts one sum
                  static_cast<unsigned>((a.rows + kTokens - 1) / kTokens));
  launch<out_product_kernel<kTokens>>(where, true, grid, kGemvThreads, digits_bytes(a.matrix.groups, kTokens),
                                      a);
}

}  // namespace

void project(const Launch& where, const NormedProductArgs& a) {
  // Four units a block, their inputs over four warps each: 193 blocks for the 35B's 12,352 channels.
  by_rows<4>(where, a, 2 * where.device->multiprocessors);
}
void head(const Launch& where, const NormedProductArgs& a) {
  by_rows<4>(where, a, (a.rows > 4 ? 1 : 2) * where.device->multiprocessors);
}
void router_logits(const Launch& where, const NormedProductArgs& a) {
  // A block takes eight rows and every unit of the router, eight units at a time; of few rows eight units.
  constexpr int kFewRows = 256;
  launch_normed<8, 2>(where, a, a.rows <= kFewRows ? where.device->multiprocessors : 1);
}
void out_product(const Launch& where, const OutProductArgs& a) {
  if (a.rows <= 1) return launch_out<1>(where, a);
  if (a.rows <= 4) return launch_out<4>(where, a);
  launch_out<8>(where, a);
}

}  // namespace lily::cuda
