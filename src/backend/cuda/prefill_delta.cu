// The gated delta rule in chunks of 64 tokens. With G_i the sum of the log decays up to token i of a chunk
// and S the state before it, the updates d_i = beta_i (v_i - decayed state^T k_i) solve
//   (I + A) d = beta v - beta e^G k S,   A_ij = beta_i e^(G_i - G_j) k_i k_j  for j < i,
// so d = u - w S with T = (I + A)^-1, u = T (beta v), w = T (beta e^G k); and
//   o = e^G q S + P d,  P_ij = e^(G_i - G_j) q_i k_j  for j <= i,    S' = e^(G_n) S + (e^(G_n - G) k)^T d.
// What does not depend on S is computed for all chunks at once (prepare_chunks), the rest one after the
// other, a block for 32 columns of a head (run_chunks). Products are of bf16, sums and the state f32. No
// exponent is positive.
//
// Chunks lie on absolute positions, so a prompt cut at multiples of 64 gives the same bits.
#include "backend/cuda/delta_rule.cuh"
#include "backend/cuda/launch.cuh"

namespace lily::cuda {
namespace {

constexpr int kRowBytes = kLinearDim * 2;
constexpr int kPBytes = kChunk * 2;  // a row of P or T

/// 16-byte chunk `i` of row `row`, turned so that eight rows' equal chunks lie in different banks.
__device__ __forceinline__ std::uint8_t* at(std::uint8_t* tile, int row_bytes, int row, int i) {
  return tile + row * row_bytes + ((i ^ (row & 7)) << 4);
}
// A fragment of rows first..first + 15, inputs 16 k..16 k + 15.
__device__ __forceinline__ void load_a(std::uint32_t (&a)[4], std::uint8_t* tile, int row_bytes, int first,
                                       int k) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  load_matrices(a, at(tile, row_bytes, first + (lane & 15), 2 * k + (lane >> 4)));
}

/// The rows of one chunk.
struct ChunkRows {
  std::int64_t first;  ///< row of the step
  int count;
};
__device__ __forceinline__ ChunkRows chunk_rows(const SegmentRows& s, int chunk) {
  const int grid = s.position / kChunk + chunk;  // which 64 positions
  const int begin = max(grid * kChunk, s.position);
  const int end = min((grid + 1) * kChunk, s.position + s.rows);
  return {s.first_row + begin - s.position, end - begin};
}

constexpr int kPrepareThreads = 256;
struct Prepare {  // shared memory
  alignas(1024) std::uint8_t key[kChunk * kRowBytes];
  std::uint8_t query[kChunk * kRowBytes];
  std::uint8_t value[kChunk * kRowBytes];
  std::uint8_t tw[kChunk * kPBytes];  // T beta e^G
  std::uint8_t tu[kChunk * kPBytes];  // T beta
  float a[kChunk][kChunk + 1];
  float t[kChunk][kChunk + 1];
  float product[kChunk][17];  // of a block row of A with T
  float sum[kChunk];          // G
  float beta[kChunk];
};

__device__ __forceinline__ uint4 pack4x2(float4 x, float4 y) {
  return make_uint4(pack_bf16(x.x, x.y), pack_bf16(x.z, x.w), pack_bf16(y.x, y.y), pack_bf16(y.z, y.w));
}
__device__ __forceinline__ float4 times(float4 x, float f) {
  return make_float4(x.x * f, x.y * f, x.z * f, x.w * f);
}

// Gates and their running sums; missing rows decay nothing and write nothing.
__device__ void load_gates(const DeltaPrefillArgs& a, Prepare& s, const ChunkRows& rows, int head) {
  const int tid = static_cast<int>(threadIdx.x);
  if (tid < 32) {
    float sum = 0;
    for (int half = 0; half < 2; ++half) {
      const int i = half * 32 + tid;
      float2 gates = make_float2(0, 0);
      if (i < rows.count) gates = a.gates[(rows.first + i) * a.value_heads + head];
      float running = gates.x;
      for (int d = 1; d < 32; d *= 2) {
        const float before = __shfl_sync(0xffffffffU, running, tid >= d ? tid - d : tid);
        if (tid >= d) running += before;
      }
      s.sum[i] = sum + running;
      s.beta[i] = gates.y;
      sum += __shfl_sync(0xffffffffU, running, 31);
    }
  }
}

// q, k and v in bf16, and q and k times their decays for run_chunks().
__device__ void load_rows(const DeltaPrefillArgs& a, Prepare& s, const ChunkRows& rows, int head,
                          std::int64_t at_chunk) {
  const int key_head = head / (a.value_heads / a.key_heads);
  const std::int64_t key_dim = static_cast<std::int64_t>(a.key_heads) * kLinearDim;
  const std::int64_t value_dim = static_cast<std::int64_t>(a.value_heads) * kLinearDim;
  const float last = s.sum[kChunk - 1];
  for (int i = static_cast<int>(threadIdx.x); i < kChunk * 16; i += kPrepareThreads) {
    const int row = i / 16;
    const int part = i % 16;
    float4 q[2] = {};
    float4 k[2] = {};
    float4 v[2] = {};
    if (row < rows.count) {
      const std::int64_t from = rows.first + row;
      for (int h = 0; h < 2; ++h) {
        const int dim = part * 8 + h * 4;
        q[h] = *reinterpret_cast<const float4*>(a.query + from * key_dim + key_head * kLinearDim + dim);
        k[h] = *reinterpret_cast<const float4*>(a.key + from * key_dim + key_head * kLinearDim + dim);
        v[h] = *reinterpret_cast<const float4*>(a.value + from * value_dim + head * kLinearDim + dim);
      }
    }
    *reinterpret_cast<uint4*>(at(s.query, kRowBytes, row, part)) = pack4x2(q[0], q[1]);
    *reinterpret_cast<uint4*>(at(s.key, kRowBytes, row, part)) = pack4x2(k[0], k[1]);
    *reinterpret_cast<uint4*>(at(s.value, kRowBytes, row, part)) = pack4x2(v[0], v[1]);
    const float before = expf(s.sum[row]);
    const float after = expf(last - s.sum[row]);
    const std::int64_t to = (at_chunk * kChunk + row) * kLinearDim + part * 8;
    *reinterpret_cast<uint4*>(a.chunks.query + to) = pack4x2(times(q[0], before), times(q[1], before));
    *reinterpret_cast<uint4*>(a.chunks.key + to) = pack4x2(times(k[0], after), times(k[1], after));
  }
}

// rows x rows^T for 16 rows and 32 columns a warp: A, or P straight to memory.
__device__ void multiply_rows(const DeltaPrefillArgs& a, Prepare& s, std::uint8_t* rows, bool is_p,
                              std::int64_t at_chunk) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int warp = static_cast<int>(threadIdx.x >> 5);
  const int first = (warp & 3) * 16;
  const int column = (warp >> 2) * 32;
  float sums[4][4] = {};
#pragma unroll
  for (int k = 0; k < kLinearDim / 16; ++k) {
    std::uint32_t left[4];
    load_a(left, rows, kRowBytes, first, k);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t right[4];  // keys 0..7: inputs 0..7, 8..15; keys 8..15 the same
      load_matrices(right, at(s.key, kRowBytes, column + half * 16 + (lane >> 4) * 8 + (lane & 7),
                              2 * k + ((lane >> 3) & 1)));
      mma_bf16(sums[2 * half], left, right[0], right[1]);
      mma_bf16(sums[2 * half + 1], left, right[2], right[3]);
    }
  }
#pragma unroll
  for (int n = 0; n < 4; ++n) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int i = first + (lane >> 2) + 8 * r;
      const int j = column + n * 8 + 2 * (lane & 3);
      float v[2];
      for (int e = 0; e < 2; ++e) {
        const bool used = is_p ? j + e <= i : j + e < i;
        v[e] = used ? sums[n][2 * r + e] * expf(s.sum[i] - s.sum[j + e]) : 0.0F;
      }
      if (is_p) {
        *reinterpret_cast<std::uint32_t*>(a.chunks.p + (at_chunk * kChunk + i) * kChunk + j) =
            pack_bf16(v[0], v[1]);
      } else {
        s.a[i][j] = v[0] * s.beta[i];
        s.a[i][j + 1] = v[1] * s.beta[i];
      }
    }
  }
}

// T = (I + A)^-1 by blocks of 16: the diagonal ones by substitution, T_ij = -T_ii sum_m A_im T_mj below them.
__device__ void invert(Prepare& s) {
  const int tid = static_cast<int>(threadIdx.x);
  for (int i = tid; i < kChunk * kChunk; i += kPrepareThreads) s.t[i / kChunk][i % kChunk] = 0;
  __syncthreads();
  if (tid < kChunk) {  // a column of a diagonal block each
    const int base = tid / 16 * 16;
    float x[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      float sum = base + i == tid ? 1.0F : 0.0F;
#pragma unroll
      for (int m = 0; m < i; ++m) sum = __fmaf_rn(-s.a[base + i][base + m], x[m], sum);
      x[i] = sum;
      s.t[base + i][tid] = sum;
    }
  }
  __syncthreads();
  const int row = tid / 16;
  const int column = tid % 16;
  for (int i = 1; i < 4; ++i) {
    for (int j = 0; j < i; ++j) {
      float sum = 0;
      for (int m = j * 16; m < i * 16; ++m)
        sum = __fmaf_rn(s.a[i * 16 + row][m], s.t[m][j * 16 + column], sum);
      s.product[j * 16 + row][column] = sum;
    }
    __syncthreads();
    for (int j = 0; j < i; ++j) {
      float sum = 0;
#pragma unroll
      for (int m = 0; m < 16; ++m)
        sum = __fmaf_rn(-s.t[i * 16 + row][i * 16 + m], s.product[j * 16 + m][column], sum);
      s.t[i * 16 + row][j * 16 + column] = sum;
    }
    __syncthreads();
  }
}

// out = T' rows: 16 rows and 64 dims a warp.
__device__ void multiply_t(std::uint8_t* t, std::uint8_t* rows, __nv_bfloat16* out) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int warp = static_cast<int>(threadIdx.x >> 5);
  const int first = (warp & 3) * 16;
  const int dims = (warp >> 2) * 64;
  float sums[8][4] = {};
#pragma unroll
  for (int k = 0; k < kChunk / 16; ++k) {
    std::uint32_t left[4];
    load_a(left, t, kPBytes, first, k);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      std::uint32_t right[4];  // 8 dims: rows 0..7, 8..15; the next 8 dims the same
      load_matrices_transposed(right,
                               at(rows, kRowBytes, k * 16 + (lane & 15), dims / 8 + 2 * n + (lane >> 4)));
      mma_bf16(sums[2 * n], left, right[0], right[1]);
      mma_bf16(sums[2 * n + 1], left, right[2], right[3]);
    }
  }
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = first + (lane >> 2) + 8 * r;
      *reinterpret_cast<std::uint32_t*>(out + row * kLinearDim + dims + n * 8 + 2 * (lane & 3)) =
          pack_bf16(sums[n][2 * r], sums[n][2 * r + 1]);
    }
  }
}

// grid (chunks of all segments, Hv)
__global__ void __launch_bounds__(kPrepareThreads) prepare_chunks(DeltaPrefillArgs a) {
  LILY_DYNAMIC_SHARED(memory);
  Prepare& s = *reinterpret_cast<Prepare*>(memory);
  const int chunk = static_cast<int>(blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  int index = 0;
  while (chunk >= a.segments[index].first_chunk + a.segments[index].chunks) ++index;
  const SegmentRows segment = a.segments[index];
  const ChunkRows rows = chunk_rows(segment, chunk - segment.first_chunk);
  const std::int64_t at_chunk = static_cast<std::int64_t>(chunk) * a.value_heads + head;
  load_gates(a, s, rows, head);
  __syncthreads();
  load_rows(a, s, rows, head, at_chunk);
  if (threadIdx.x == 0) a.chunks.decay[at_chunk] = expf(s.sum[kChunk - 1]);
  __syncthreads();
  multiply_rows(a, s, s.key, false, at_chunk);
  multiply_rows(a, s, s.query, true, at_chunk);
  __syncthreads();
  invert(s);
  for (int i = static_cast<int>(threadIdx.x); i < kChunk * kChunk / 2; i += kPrepareThreads) {
    const int row = i / (kChunk / 2);
    const int j = i % (kChunk / 2) * 2;
    const float u0 = s.t[row][j] * s.beta[j];
    const float u1 = s.t[row][j + 1] * s.beta[j + 1];
    const int offset = (j % 8) * 2;
    *reinterpret_cast<std::uint32_t*>(at(s.tu, kPBytes, row, j / 8) + offset) = pack_bf16(u0, u1);
    *reinterpret_cast<std::uint32_t*>(at(s.tw, kPBytes, row, j / 8) + offset) =
        pack_bf16(u0 * expf(s.sum[j]), u1 * expf(s.sum[j + 1]));
  }
  __syncthreads();
  multiply_t(s.tu, s.value, a.chunks.u + at_chunk * kChunk * kLinearDim);
  multiply_t(s.tw, s.key, a.chunks.w + at_chunk * kChunk * kLinearDim);
}

constexpr int kColumns = 32;
constexpr int kRunThreads = 128;
constexpr int kNarrowBytes =
    80;       // a row of 32 columns, padded: eight rows' equal chunks lie in different banks
struct Run {  // shared memory
  alignas(1024) std::uint8_t w[kChunk * kRowBytes];
  std::uint8_t query[kChunk * kRowBytes];
  std::uint8_t key[kChunk * kRowBytes];
  std::uint8_t p[kChunk * kPBytes];
  std::uint8_t u[kChunk * kNarrowBytes];
  std::uint8_t state[kLinearDim * kNarrowBytes];
  std::uint8_t update[kChunk * kNarrowBytes];  // d
};

__device__ __forceinline__ void load_tile(std::uint8_t* tile, int row_bytes, const __nv_bfloat16* from) {
  const int parts = row_bytes / 16;
  for (int i = static_cast<int>(threadIdx.x); i < kChunk * parts; i += kRunThreads)
    copy_async16(at(tile, row_bytes, i / parts, i % parts), from + i * 8, true);
}
// What the first half of a chunk needs, and the second.
__device__ void load_first(const DeltaPrefillArgs& a, Run& s, std::int64_t at_chunk, int column) {
  load_tile(s.w, kRowBytes, a.chunks.w + at_chunk * kChunk * kLinearDim);
  load_tile(s.query, kRowBytes, a.chunks.query + at_chunk * kChunk * kLinearDim);
  for (int i = static_cast<int>(threadIdx.x); i < kChunk * 4; i += kRunThreads)
    copy_async16(s.u + i / 4 * kNarrowBytes + i % 4 * 16,
                 a.chunks.u + (at_chunk * kChunk + i / 4) * kLinearDim + column + i % 4 * 8, true);
}
__device__ void load_second(const DeltaPrefillArgs& a, Run& s, std::int64_t at_chunk) {
  load_tile(s.key, kRowBytes, a.chunks.key + at_chunk * kChunk * kLinearDim);
  load_tile(s.p, kPBytes, a.chunks.p + at_chunk * kChunk * kChunk);
}

// B fragments of 16 inputs x 32 columns from rows of 32 columns.
__device__ __forceinline__ void load_narrow(std::uint32_t (&b)[2][4], std::uint8_t* tile, int k) {
  const int lane = static_cast<int>(threadIdx.x & 31);
#pragma unroll
  for (int half = 0; half < 2; ++half)
    load_matrices_transposed(b[half],
                             tile + (k * 16 + (lane & 15)) * kNarrowBytes + half * 32 + (lane >> 4) * 16);
}
__device__ __forceinline__ void multiply_narrow(float (&sums)[4][4], const std::uint32_t (&a)[4],
                                                const std::uint32_t (&b)[2][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    mma_bf16(sums[2 * half], a, b[half][0], b[half][1]);
    mma_bf16(sums[2 * half + 1], a, b[half][2], b[half][3]);
  }
}

// The state's share of a warp, 32 rows x 32 columns, as it lies in accumulators.
using State = float[2][4][4];

__device__ void keep_state(Run& s, const State& state) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int warp = static_cast<int>(threadIdx.x >> 5);
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = warp * 32 + m * 16 + (lane >> 2) + 8 * r;
        *reinterpret_cast<std::uint32_t*>(s.state + row * kNarrowBytes + n * 16 + (lane & 3) * 4) =
            pack_bf16(state[m][n][2 * r], state[m][n][2 * r + 1]);
      }
    }
  }
}

// d = u - w S to shared memory, o = q S.
__device__ void meet_state(Run& s, float (&out)[4][4]) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int first = static_cast<int>(threadIdx.x >> 5) * 16;
  float met[4][4] = {};
#pragma unroll
  for (int k = 0; k < kLinearDim / 16; ++k) {
    std::uint32_t w[4];
    std::uint32_t q[4];
    std::uint32_t state[2][4];
    load_a(w, s.w, kRowBytes, first, k);
    load_a(q, s.query, kRowBytes, first, k);
    load_narrow(state, s.state, k);
    multiply_narrow(met, w, state);
    multiply_narrow(out, q, state);
  }
#pragma unroll
  for (int n = 0; n < 4; ++n) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int offset = (first + (lane >> 2) + 8 * r) * kNarrowBytes + n * 16 + (lane & 3) * 4;
      const std::uint32_t u = *reinterpret_cast<const std::uint32_t*>(s.u + offset);
      *reinterpret_cast<std::uint32_t*>(s.update + offset) =
          pack_bf16(bf16_low(u) - met[n][2 * r], bf16_high(u) - met[n][2 * r + 1]);
    }
  }
}

// o += P d, S = decay S + k^T d.
__device__ void apply_updates(Run& s, float (&out)[4][4], State& state, float decay) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int warp = static_cast<int>(threadIdx.x >> 5);
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) state[m][n][e] *= decay;
    }
  }
#pragma unroll
  for (int k = 0; k < kChunk / 16; ++k) {
    std::uint32_t p[4];
    std::uint32_t d[2][4];
    load_a(p, s.p, kPBytes, warp * 16, k);
    load_narrow(d, s.update, k);
    multiply_narrow(out, p, d);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      std::uint32_t key[4];  // transposed: rows are dims, inputs tokens
      load_matrices_transposed(key, at(s.key, kRowBytes, k * 16 + (lane >> 4) * 8 + (lane & 7),
                                       warp * 4 + m * 2 + ((lane >> 3) & 1)));
      multiply_narrow(state[m], key, d);
    }
  }
}

__device__ void store_output(const DeltaPrefillArgs& a, const float (&out)[4][4], const SegmentRows& segment,
                             int chunk, int head, int column) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const ChunkRows rows = chunk_rows(segment, chunk);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = static_cast<int>(threadIdx.x >> 5) * 16 + (lane >> 2) + 8 * r;
    if (row >= rows.count) continue;
    float* to = a.value + ((rows.first + row) * a.value_heads + head) * kLinearDim + column + 2 * (lane & 3);
#pragma unroll
    for (int n = 0; n < 4; ++n)
      *reinterpret_cast<float2*>(to + n * 8) = make_float2(out[n][2 * r], out[n][2 * r + 1]);
  }
}

// grid (4 column blocks, Hv, segments)
__global__ void __launch_bounds__(kRunThreads) run_chunks(DeltaPrefillArgs a) {
  LILY_DYNAMIC_SHARED(memory);
  Run& s = *reinterpret_cast<Run*>(memory);
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int warp = static_cast<int>(threadIdx.x >> 5);
  const int column = static_cast<int>(blockIdx.x) * kColumns;
  const int head = static_cast<int>(blockIdx.y);
  const SegmentRows segment = a.segments[blockIdx.z];
  float* memory_state =
      a.state.layer + segment.slot * a.state.stride +
      (static_cast<std::int64_t>(head) * kLinearDim + warp * 32 + (lane >> 2)) * kLinearDim + column +
      2 * (lane & 3);
  State state;
  const auto each_state = [&](auto&& visit) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
#pragma unroll
        for (int r = 0; r < 2; ++r)
          visit(reinterpret_cast<float2*>(memory_state + (m * 16 + 8 * r) * kLinearDim + n * 8),
                state[m][n][2 * r], state[m][n][2 * r + 1]);
      }
    }
  };
  each_state([](const float2* from, float& x, float& y) {
    x = from->x;
    y = from->y;
  });
  const auto at_chunk = [&](int chunk) {
    return static_cast<std::int64_t>(segment.first_chunk + chunk) * a.value_heads + head;
  };
  load_first(a, s, at_chunk(0), column);
  commit_copies();
  load_second(a, s, at_chunk(0));
  commit_copies();
  for (int chunk = 0; chunk < segment.chunks; ++chunk) {
    const float decay = a.chunks.decay[at_chunk(chunk)];
    const bool more = chunk + 1 < segment.chunks;
    float out[4][4] = {};
    keep_state(s, state);
    wait_for_copies<1>();
    __syncthreads();
    meet_state(s, out);
    __syncthreads();
    if (more) load_first(a, s, at_chunk(chunk + 1), column);
    commit_copies();
    wait_for_copies<1>();
    __syncthreads();
    apply_updates(s, out, state, decay);
    __syncthreads();
    if (more) load_second(a, s, at_chunk(chunk + 1));
    commit_copies();
    store_output(a, out, segment, chunk, head, column);
  }
  each_state([](float2* to, float x, float y) { *to = make_float2(x, y); });
}

}  // namespace

void delta_chunks(const Launch& where, const DeltaPrefillArgs& a) {
  const auto heads = static_cast<unsigned>(a.value_heads);
  launch<prepare_chunks>(where, false, dim3(static_cast<unsigned>(a.chunk_count), heads), kPrepareThreads,
                         sizeof(Prepare), a);
  launch<run_chunks>(where, false, dim3(kLinearDim / kColumns, heads, static_cast<unsigned>(a.segment_count)),
                     kRunThreads, sizeof(Run), a);
}

}  // namespace lily::cuda
