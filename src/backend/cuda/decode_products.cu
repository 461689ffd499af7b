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

// The input of the out-projection: attention's output as it is, or the delta rule's through the gated norm
// (norm first, then the gate), a warp a head.
template <int kTokens>
__device__ void output_digits(const Digits& d, const OutProductArgs& a, int first) {
  struct Quad {
    float4 x, z, gain;
  };
  const int quads = a.matrix.inputs() / 4;
  for (int token = 0; token < kTokens; ++token) {
    const int row = first + token;
    const float* x = a.input + static_cast<std::int64_t>(row) * a.matrix.inputs();
    const float* z = a.gate + static_cast<std::int64_t>(row) * a.gate_stride;
    put_all_digits<kTokens, 2>(
        d, quads, token,
        [&](int quad, bool valid) {
          Quad q{};
          if (valid && row < a.rows) {
            q.x = load_quad(x, quad);
            if (a.gate != nullptr) {
              q.z = load_quad(z, quad);
              q.gain = load_quad(a.gain, quad & 31);
            }
          }
          return q;
        },
        [&](int, const Quad& q) -> Weighted {
          if (a.gate == nullptr) return {q.x};
          const float inverse =
              rsqrtf(warp_sum(add_squares(0, q.x)) / static_cast<float>(kLinearDim) + a.eps);
          return {make_float4(
              q.x.x * inverse * q.gain.x * silu(q.z.x), q.x.y * inverse * q.gain.y * silu(q.z.y),
              q.x.z * inverse * q.gain.z * silu(q.z.z), q.x.w * inverse * q.gain.w * silu(q.z.w))};
        });
  }
  __syncthreads();
}

template <int kTokens>
__global__ void __launch_bounds__(kGemvThreads, kTokens > 4 ? 1 : 2) out_product_kernel(OutProductArgs a) {
  LILY_DYNAMIC_SHARED(memory);
  using Out = Products<kTokens, 8, false>;  // two units a block
  __shared__ float partial[Out::kPartialFloats];
  const Digits digits = digits_at<kTokens>(memory, a.matrix.groups);
  Out products(a.matrix, 0, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
  products.prefetch();
  wait_for_previous();
  let_next_start();

  const int first = static_cast<int>(blockIdx.y) * kTokens;
  output_digits<kTokens>(digits, a, first);
  const int hidden = a.matrix.channels;
  products.run(digits, partial, [&](int unit, int row, int token, float value) {
    if (first + token >= a.rows) return;
    float* x = a.residual + static_cast<std::int64_t>(first + token) * hidden + unit_channel(unit, row);
    *x = __ldcg(x) + value;
  });
}

template <int kTokens>
void launch_out(const Launch& where, const OutProductArgs& a) {
  const dim3 grid(static_cast<unsigned>(a.matrix.pairs()),
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
  by_rows<1>(where, a, (a.rows > 4 ? 1 : 2) * where.device->multiprocessors);
}
void router_logits(const Launch& where, const NormedProductArgs& a) {
  // A block takes eight rows and every unit of the router, eight units at a time.
  launch_normed<8, 2>(where, a, 1);
}
void out_product(const Launch& where, const OutProductArgs& a) {
  if (a.rows <= 1) return launch_out<1>(where, a);
  if (a.rows <= 4) return launch_out<4>(where, a);
  launch_out<8>(where, a);
}

}  // namespace lily::cuda
