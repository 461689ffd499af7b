// wgmma m64nNk16: f32 += bf16 (A: registers) * bf16 (B: shared memory, K-major). The assembler wants every
// operand spelled out, so a height's registers are those of the height before and eight more.
#pragma once

#include <cstdint>

namespace lily::cuda {

template <int kTokens>
struct Wgmma;

// Names and operands of the first N accumulators.
#define LILY_REGISTERS_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define LILY_REGISTERS_16 LILY_REGISTERS_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define LILY_REGISTERS_24 LILY_REGISTERS_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define LILY_REGISTERS_32 LILY_REGISTERS_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define LILY_REGISTERS_40 LILY_REGISTERS_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define LILY_REGISTERS_48 LILY_REGISTERS_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define LILY_REGISTERS_56 LILY_REGISTERS_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define LILY_REGISTERS_64 LILY_REGISTERS_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define LILY_REGISTERS_72 LILY_REGISTERS_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define LILY_REGISTERS_80 LILY_REGISTERS_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define LILY_REGISTERS_88 LILY_REGISTERS_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define LILY_REGISTERS_96 LILY_REGISTERS_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define LILY_REGISTERS_104 LILY_REGISTERS_96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define LILY_REGISTERS_112 LILY_REGISTERS_104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define LILY_REGISTERS_120 LILY_REGISTERS_112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define LILY_REGISTERS_128 LILY_REGISTERS_120 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define LILY_EIGHT(d, i)                                                                                \
  "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]), "+f"(d[(i) + 5]), \
      "+f"(d[(i) + 6]), "+f"(d[(i) + 7])
#define LILY_OPERANDS_8(d) LILY_EIGHT(d, 0)
#define LILY_OPERANDS_16(d) LILY_OPERANDS_8(d), LILY_EIGHT(d, 8)
#define LILY_OPERANDS_24(d) LILY_OPERANDS_16(d), LILY_EIGHT(d, 16)
#define LILY_OPERANDS_32(d) LILY_OPERANDS_24(d), LILY_EIGHT(d, 24)
#define LILY_OPERANDS_40(d) LILY_OPERANDS_32(d), LILY_EIGHT(d, 32)
#define LILY_OPERANDS_48(d) LILY_OPERANDS_40(d), LILY_EIGHT(d, 40)
#define LILY_OPERANDS_56(d) LILY_OPERANDS_48(d), LILY_EIGHT(d, 48)
#define LILY_OPERANDS_64(d) LILY_OPERANDS_56(d), LILY_EIGHT(d, 56)
#define LILY_OPERANDS_72(d) LILY_OPERANDS_64(d), LILY_EIGHT(d, 64)
#define LILY_OPERANDS_80(d) LILY_OPERANDS_72(d), LILY_EIGHT(d, 72)
#define LILY_OPERANDS_88(d) LILY_OPERANDS_80(d), LILY_EIGHT(d, 80)
#define LILY_OPERANDS_96(d) LILY_OPERANDS_88(d), LILY_EIGHT(d, 88)
#define LILY_OPERANDS_104(d) LILY_OPERANDS_96(d), LILY_EIGHT(d, 96)
#define LILY_OPERANDS_112(d) LILY_OPERANDS_104(d), LILY_EIGHT(d, 104)
#define LILY_OPERANDS_120(d) LILY_OPERANDS_112(d), LILY_EIGHT(d, 112)
#define LILY_OPERANDS_128(d) LILY_OPERANDS_120(d), LILY_EIGHT(d, 120)

// `tokens`: B's columns; `count` = tokens / 2 accumulators a thread; `inputs`: the names of A's four
// registers, then B's descriptor, which follow the accumulators.
#define LILY_WGMMA(tokens, count, inputs)                                                                   \
  template <>                                                                                               \
  struct Wgmma<tokens> {                                                                                    \
    static __device__ __forceinline__ void multiply(float (&d)[count], const std::uint32_t (&a)[4],         \
                                                    std::uint64_t descriptor) {                             \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #tokens "k16.f32.bf16.bf16 {" LILY_REGISTERS_##count \
                   "}, " inputs ", 1, 1, 1, 0;"                                                             \
                   : LILY_OPERANDS_##count(d)                                                               \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor));                          \
    }                                                                                                       \
  }
LILY_WGMMA(16, 8, "{%8, %9, %10, %11}, %12");
LILY_WGMMA(32, 16, "{%16, %17, %18, %19}, %20");
LILY_WGMMA(48, 24, "{%24, %25, %26, %27}, %28");
LILY_WGMMA(64, 32, "{%32, %33, %34, %35}, %36");
LILY_WGMMA(80, 40, "{%40, %41, %42, %43}, %44");
LILY_WGMMA(96, 48, "{%48, %49, %50, %51}, %52");
LILY_WGMMA(112, 56, "{%56, %57, %58, %59}, %60");
LILY_WGMMA(128, 64, "{%64, %65, %66, %67}, %68");

/// Attention's products for 64 rows. Scores: += queries (shared memory) * 64 keys (shared memory), 16 of the
/// inputs.
__device__ __forceinline__ void multiply_keys(float (&d)[32], std::uint64_t queries, std::uint64_t keys) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" LILY_REGISTERS_32
               "}, %32, %33, 1, 1, 1, 0, 0;"
               : LILY_OPERANDS_32(d)
               : "l"(queries), "l"(keys));
}
/// Output: += probabilities (registers) of 16 keys * their values (shared memory, a key a row).
__device__ __forceinline__ void multiply_values(float (&d)[128], const std::uint32_t (&a)[4],
                                                std::uint64_t values) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" LILY_REGISTERS_128
               "}, {%128, %129, %130, %131}, %132, 1, 1, 1, 1;"
               : LILY_OPERANDS_128(d)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(values));
}

#undef LILY_REGISTERS_8
#undef LILY_REGISTERS_16
#undef LILY_REGISTERS_24
#undef LILY_REGISTERS_32
#undef LILY_REGISTERS_40
#undef LILY_REGISTERS_48
#undef LILY_REGISTERS_56
#undef LILY_REGISTERS_64
#undef LILY_REGISTERS_72
#undef LILY_REGISTERS_80
#undef LILY_REGISTERS_88
#undef LILY_REGISTERS_96
#undef LILY_REGISTERS_104
#undef LILY_REGISTERS_112
#undef LILY_REGISTERS_120
#undef LILY_REGISTERS_128
#undef LILY_OPERANDS_8
#undef LILY_OPERANDS_16
#undef LILY_OPERANDS_24
#undef LILY_OPERANDS_32
#undef LILY_OPERANDS_40
#undef LILY_OPERANDS_48
#undef LILY_OPERANDS_56
#undef LILY_OPERANDS_64
#undef LILY_OPERANDS_72
#undef LILY_OPERANDS_80
#undef LILY_OPERANDS_88
#undef LILY_OPERANDS_96
#undef LILY_OPERANDS_104
#undef LILY_OPERANDS_112
#undef LILY_OPERANDS_120
#undef LILY_OPERANDS_128
#undef LILY_EIGHT
#undef LILY_WGMMA

}  // namespace lily::cuda
