// The instructions of ptx.cuh in plain C++.
#pragma once

#define LILY_DYNAMIC_SHARED(name) std::uint8_t* const name = lily::cuda::emulator::dynamic_shared()

namespace lily::cuda {

inline void wait_for_previous() {}
inline void let_next_start() {}

template <class T>
T load_aligned(const void* p) {
  if (reinterpret_cast<std::uintptr_t>(p) % sizeof(T) != 0) std::abort();
  T v;
  std::memcpy(&v, p, sizeof(T));
  return v;
}
inline uint4 load_weights16(const void* p) {
  return load_aligned<uint4>(p);
}
inline uint2 load_weights8(const void* p) {
  return load_aligned<uint2>(p);
}

inline void prefetch_l2(const void*) {}

namespace emulator {
inline std::uint64_t two(std::uint32_t low, std::uint32_t high) {
  return static_cast<std::uint64_t>(high) << 32 | low;
}
inline std::uint32_t word(const WarpValues& all, unsigned lane, unsigned i) {
  return static_cast<std::uint32_t>(all.lane[lane][i / 2] >> (32 * (i % 2)));
}
inline float bf16(std::uint32_t w, unsigned i) {
  return __uint_as_float(w >> (16 * i) << 16);
}
inline std::uint32_t round_bf16(double v) {  // to nearest even, once
  const float f = static_cast<float>(v);
  std::uint32_t bits = __float_as_uint(f);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return bits >> 16 | 0x40U;
  // v need not be a float: what the float lost decides an apparent tie.
  const std::uint32_t half = bits & 0xffffU;
  std::uint32_t up = half > 0x8000U ? 1U : half < 0x8000U ? 0U : (bits >> 16) & 1U;
  if (half == 0x8000U && v != static_cast<double>(f))
    up = std::fabs(v) > std::fabs(static_cast<double>(f)) ? 1U : 0U;
  return (bits >> 16) + up;
}
}  // namespace emulator

inline void mma_u8s8(int (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  using namespace emulator;
  const WarpValues& all = exchange({two(a[0], a[1]), two(a[2], a[3]), two(b0, b1), 0});
  const unsigned g = lane_index() / 4;
  for (unsigned e = 0; e < 4; ++e) {
    const unsigned column = lane_index() % 4 * 2 + e % 2;
    for (unsigned part = 0; part < 8; ++part) {  // four inputs: lane part % 4, register part / 4
      const std::uint32_t x = word(all, g * 4 + part % 4, e / 2 + part / 4 * 2);
      const std::uint32_t y = word(all, column * 4 + part % 4, 4 + part / 4);
      for (unsigned i = 0; i < 4; ++i) {
        c[e] += static_cast<int>(x >> (8 * i) & 255U) * static_cast<std::int8_t>(y >> (8 * i));
      }
    }
  }
}
inline void mma_bf16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  using namespace emulator;
  const WarpValues& all = exchange({two(a[0], a[1]), two(a[2], a[3]), two(b0, b1), 0});
  const unsigned g = lane_index() / 4;
  for (unsigned e = 0; e < 4; ++e) {
    const unsigned column = lane_index() % 4 * 2 + e % 2;
    float sum = 0;
    for (unsigned part = 0; part < 8; ++part) {
      const std::uint32_t x = word(all, g * 4 + part % 4, e / 2 + part / 4 * 2);
      const std::uint32_t y = word(all, column * 4 + part % 4, 4 + part / 4);
      sum += bf16(x, 0) * bf16(y, 0) + bf16(x, 1) * bf16(y, 1);
    }
    c[e] += sum;
  }
}
inline std::uint32_t fma_bf16x2(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  using namespace emulator;
  std::uint32_t out = 0;
  for (unsigned i = 0; i < 2; ++i) {
    const double v = static_cast<double>(bf16(a, i)) * bf16(b, i) + bf16(c, i);
    out |= round_bf16(v) << (16 * i);
  }
  return out;
}
inline std::uint32_t pack_bf16(float low, float high) {
  return emulator::round_bf16(low) | emulator::round_bf16(high) << 16;
}

inline float exp2_approximate(float x) {
  return std::exp2(x);
}

namespace emulator {
inline void load_matrices(std::uint32_t (&r)[4], const void* row, bool transposed) {
  const WarpValues& all = exchange({reinterpret_cast<std::uintptr_t>(row), 0, 0, 0});
  const unsigned g = lane_index() / 4;
  const unsigned c = lane_index() % 4;
  for (unsigned m = 0; m < 4; ++m) {
    const auto element = [&](unsigned i, unsigned j) -> std::uint32_t {
      return reinterpret_cast<const std::uint16_t*>(all.lane[m * 8 + i][0])[j];
    };
    r[m] = transposed ? element(2 * c, g) | element(2 * c + 1, g) << 16
                      : element(g, 2 * c) | element(g, 2 * c + 1) << 16;
  }
}
}  // namespace emulator
inline void load_matrices(std::uint32_t (&r)[4], const void* row) {
  emulator::load_matrices(r, row, false);
}
inline void load_matrices_transposed(std::uint32_t (&r)[4], const void* row) {
  emulator::load_matrices(r, row, true);
}

inline void copy_async16(void* shared, const void* global, bool valid) {
  if (valid) {
    std::memcpy(shared, global, 16);
  } else {
    std::memset(shared, 0, 16);
  }
}
inline void commit_copies() {}
template <int kPending>
void wait_for_copies() {}

class BlockCopy {
 public:
  explicit BlockCopy(std::uint64_t*) {}
  void init() {}
  void expect(int bytes) { expected_ = bytes; }
  void copy(void* shared, const void* global, int bytes) {
    const auto unaligned = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 != 0; };
    expected_ -= bytes;
    if (bytes % 16 != 0 || unaligned(shared) || unaligned(global)) std::abort();
    if (threadIdx.x == 0) std::memcpy(shared, global, static_cast<std::size_t>(bytes));
  }
  void wait() {
    if (expected_ != 0) std::abort();  // a card would wait for ever
    __syncthreads();
  }

 private:
  int expected_ = 0;
};

}  // namespace lily::cuda
