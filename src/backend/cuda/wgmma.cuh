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

#undef LILY_REGISTERS_8
#undef LILY_REGISTERS_16
#undef LILY_REGISTERS_24
#undef LILY_REGISTERS_32
#undef LILY_REGISTERS_40
#undef LILY_REGISTERS_48
#undef LILY_REGISTERS_56
#undef LILY_REGISTERS_64
#undef LILY_OPERANDS_8
#undef LILY_OPERANDS_16
#undef LILY_OPERANDS_24
#undef LILY_OPERANDS_32
#undef LILY_OPERANDS_40
#undef LILY_OPERANDS_48
#undef LILY_OPERANDS_56
#undef LILY_OPERANDS_64
#undef LILY_EIGHT
#undef LILY_WGMMA

}  // namespace lily::cuda
