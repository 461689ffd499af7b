// Which kernels a machine gets, this one and made-up ones.
#include "backend/cpu/isa.h"

#include <gtest/gtest.h>

#include "backend/cpu/isa_x86.h"
#include "backend/cpu/kernels.h"

namespace lily::cpu {
namespace {

TEST(SelectKernels, TakesEveryUsableNameAndRefusesOthers) {
  for (const Kernels* kernels : usable_kernels()) {
    const auto selected = select_kernels(kernels->isa);
    ASSERT_TRUE(selected.ok());
    EXPECT_EQ(*selected, kernels);
  }
  EXPECT_EQ(*select_kernels("auto"), usable_kernels().front());
  EXPECT_EQ(usable_kernels().back(), &generic_kernels());
  EXPECT_EQ(select_kernels("sse9").error().code, ErrorCode::kInvalidArgument);
#if defined(__x86_64__)
  EXPECT_EQ(select_kernels("neon").error().code, ErrorCode::kUnsupported);
#endif
}

/// A made-up processor with the features that the bits say, under a system that saves what `saved` says.
struct FakeX86 {
  std::uint32_t highest_leaf = 7;
  std::uint32_t highest_subleaf = 1;
  std::uint32_t leaf1_ecx = 1U << 12 | 1U << 27 | 1U << 28;                       // FMA, OSXSAVE, AVX
  std::uint32_t leaf7_ebx = 1U << 5 | 1U << 16 | 1U << 17 | 1U << 30 | 1U << 31;  // AVX2, AVX-512 F DQ BW VL
  std::uint32_t leaf7_ecx = 1U << 11;                                             // VNNI
  std::uint32_t leaf7_edx = 0;
  std::uint32_t leaf7_1_eax = 1U << 5;  // BF16
  std::uint64_t saved = 0xe7;
  bool grants_tiles = false;
  bool asked_for_xcr0 = false;
  bool asked_for_tiles = false;

  /// Best instruction set, by name.
  std::string best() {
    const X86Features f = find_x86_features(
        {.cpuid = [this](std::uint32_t leaf, std::uint32_t subleaf) { return words(leaf, subleaf); },
         .xcr0 =
             [this] {
               asked_for_xcr0 = true;
               return saved;
             },
         .grants_tiles =
             [this] {
               asked_for_tiles = true;
               return grants_tiles;
             }});
    EXPECT_TRUE(f.avx2 || !f.avx512);
    EXPECT_TRUE(f.avx512 || !f.avx512bf16);
    EXPECT_TRUE(f.avx512bf16 || !f.amx);
    return f.amx ? "amx" : f.avx512bf16 ? "avx512bf16" : f.avx512 ? "avx512" : f.avx2 ? "avx2" : "generic";
  }

 private:
  [[nodiscard]] CpuidWords words(std::uint32_t leaf, std::uint32_t subleaf) const {
    if (leaf == 0) return {.eax = highest_leaf};
    if (leaf == 1) return {.ecx = leaf1_ecx};
    // What real processors answer beyond their last leaf is not zeros.
    if (leaf > highest_leaf || subleaf > highest_subleaf) return {~0U, ~0U, ~0U, ~0U};
    if (subleaf == 1) return {.eax = leaf7_1_eax};
    return {.eax = highest_subleaf, .ebx = leaf7_ebx, .ecx = leaf7_ecx, .edx = leaf7_edx};
  }
};

TEST(X86Features, TakesTheBestThatProcessorAndSystemAllow) {
  EXPECT_EQ(FakeX86{}.best(), "avx512bf16");
  EXPECT_EQ(FakeX86{.leaf7_1_eax = 0}.best(), "avx512");
  EXPECT_EQ(FakeX86{.highest_subleaf = 0}.best(), "avx512");
  EXPECT_EQ(FakeX86{.leaf7_ecx = 0}.best(), "avx2");  // the first AVX-512 processors have no VNNI
  for (const int missing : {16, 17, 30, 31}) {
    FakeX86 machine;
    machine.leaf7_ebx &= ~(1U << missing);
    EXPECT_EQ(machine.best(), "avx2") << missing;
  }
  EXPECT_EQ(FakeX86{.leaf7_ebx = 0}.best(), "generic");
  EXPECT_EQ(FakeX86{.leaf1_ecx = 1U << 27 | 1U << 28}.best(), "generic");  // AVX2 without FMA
  EXPECT_EQ(FakeX86{.highest_leaf = 6}.best(), "generic");
}

TEST(X86Features, TakesNothingWhoseRegistersTheSystemDoesNotSave) {
  EXPECT_EQ(FakeX86{.saved = 0x07}.best(), "avx2");
  for (const std::uint64_t lost : {0x20, 0x40, 0x80})
    EXPECT_EQ(FakeX86{.saved = 0xe7 & ~lost}.best(), "avx2");
  for (const std::uint64_t lost : {0x02, 0x04}) EXPECT_EQ(FakeX86{.saved = 0xe7 & ~lost}.best(), "generic");
  FakeX86 no_xsave{.leaf1_ecx = 1U << 12 | 1U << 28};
  EXPECT_EQ(no_xsave.best(), "generic");
  EXPECT_FALSE(no_xsave.asked_for_xcr0);  // the instruction would fault
}

TEST(X86Features, TakesTilesOnlyOfASystemThatSavesAndGrantsThem) {
  constexpr std::uint32_t kAmx = 1U << 22 | 1U << 24;  // BF16, tiles
  const FakeX86 whole{.leaf7_edx = kAmx, .saved = 0x600e7, .grants_tiles = true};
  EXPECT_EQ(FakeX86(whole).best(), "amx");
  for (const std::uint32_t part : {1U << 22, 1U << 24, 0U}) {
    FakeX86 machine(whole);
    machine.leaf7_edx = part;
    EXPECT_EQ(machine.best(), "avx512bf16");
    EXPECT_FALSE(machine.asked_for_tiles);
  }
  for (const std::uint64_t saved : {0x200e7, 0x400e7, 0xe7}) {
    FakeX86 machine(whole);
    machine.saved = saved;
    EXPECT_EQ(machine.best(), "avx512bf16");
    EXPECT_FALSE(machine.asked_for_tiles);
  }
  FakeX86 refused(whole);
  refused.grants_tiles = false;
  EXPECT_EQ(refused.best(), "avx512bf16");
  EXPECT_TRUE(refused.asked_for_tiles);
  FakeX86 without_bf16_vectors(whole);
  without_bf16_vectors.leaf7_1_eax = 0;
  EXPECT_EQ(without_bf16_vectors.best(), "avx512");
}

}  // namespace
}  // namespace lily::cpu
