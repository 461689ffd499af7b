// A dense layer's MLP for single rows, first half: silu(gate) * up, quantised for the second half, which is
// an out-projection.
#include "backend/cuda/gemv.cuh"
#include "backend/cuda/launch.cuh"

namespace lily::cuda {
namespace {

// A block takes 16 columns: their gates and up projections, inputs over eight warps each.
template <int kTokens>
__global__ void __launch_bounds__(kGemvThreads, kTokens > 4 ? 1 : 2)
    gated_product_kernel(GatedProductArgs a) {
  LILY_DYNAMIC_SHARED(memory);
  using Matrix = Products<kTokens, 8, true>;
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
  fetch_digits<kTokens>(copy, digits, a.normed, first, a.rows);
  copy.wait();
  find_inverse_rms<kTokens>(digits, a.eps, inverse_rms);
  const int groups = a.matrix.channels / 2 / kGroup;
  products.run(digits, partial, [&](int unit, int, int token, float gate, float up) {
    const float r = inverse_rms[token];
    put_columns(silu(gate * r) * (up * r), a.out + (first + token) * digits_bytes(groups), groups,
                unit_column(unit, 0), first + token < a.rows);
  });
}

template <int kTokens>
void launch_gated(const Launch& where, const GatedProductArgs& a) {
  const dim3 grid(static_cast<unsigned>(a.matrix.pairs()),
                  static_cast<unsigned>((a.rows + kTokens - 1) / kTokens));
  launch<gated_product_kernel<kTokens>>(where, true, grid, kGemvThreads,
                                        static_cast<std::size_t>(kTokens * digits_bytes(a.matrix.groups)), a);
}

}  // namespace

void gated_product(const Launch& where, const GatedProductArgs& a) {
  const int most = most_digit_rows(*where.device, a.matrix.groups);
  if (a.rows <= 1 || most < 4) return launch_gated<1>(where, a);
  if (a.rows <= 4 || most < 8) return launch_gated<4>(where, a);
  launch_gated<8>(where, a);
}

}  // namespace lily::cuda
