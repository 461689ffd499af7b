#include "backend/metal/pipelines.h"

#include <fmt/format.h>

#include "backend/metal/kernels/kernels.h"

namespace lily::metal {
namespace {

constexpr std::array kBits = {4, 8};

class Compiler {
 public:
  Compiler(GpuDevice& device, bool small_groups)
      : device_(device), constants_{FunctionConstant{.index = kSmallGroupsConstant, .value = small_groups}} {}

  void compile(Pipelines::Pipeline& to, const std::string& name) {
    if (!status_.ok()) return;
    auto made = device_.pipeline(name, constants_);
    if (made.ok()) {
      to = std::move(made).value();
    } else {
      status_ = std::move(made).error().in(name);
    }
  }
  void compile(Pipelines::ByBits& to, const char* name) {
    for (const int bits : kBits) compile(to[bits_index(bits)], fmt::format("{}_q{}", name, bits));
  }
  void compile(Pipelines::ByBitsAndTokens& to, const char* name) {
    for (const int bits : kBits) {
      for (std::size_t i = 0; i < to[0].size(); ++i)
        compile(to[bits_index(bits)][i], fmt::format("{}_q{}_t{}", name, bits, tokens_of(i)));
    }
  }
  void compile(Pipelines::ByTwoBits& to, const char* name) {
    for (const int a : kBits) {
      for (const int b : kBits)
        compile(to[bits_index(a)][bits_index(b)], fmt::format("{}_q{}_q{}", name, a, b));
    }
  }
  void compile_tiles(Pipelines::ByBitsAndHeight& to, const std::string& name) {
    for (const int bits : kBits) {
      compile(to[bits_index(bits)][0], fmt::format("{}_q{}_r{}", name, bits, kTileRows));
      compile(to[bits_index(bits)][1], fmt::format("{}_q{}_r{}", name, bits, kTallTileRows));
    }
  }
  [[nodiscard]] Result<void> status() && { return std::move(status_); }

 private:
  GpuDevice& device_;
  const std::array<FunctionConstant, 1> constants_;
  Result<void> status_;
};

}  // namespace

Result<Pipelines> Pipelines::compile(GpuDevice& device, bool small_groups) {
  Pipelines p;
  Compiler compiler(device, small_groups);
  compiler.compile(p.embed, "embed");
  compiler.compile(p.project, "project");
  compiler.compile(p.add_plain, "add_plain");
  compiler.compile(p.add_gated_norm, "add_gated_norm");
  compiler.compile(p.gated, "gated");
  compiler.compile(p.experts_in, "experts_in");
  compiler.compile(p.experts_out, "experts_out");
  compiler.compile(p.delta_decode, "delta_decode");
  compiler.compile(p.prepare_heads, "prepare_heads");
  compiler.compile(p.attend_ranges, "attend_ranges");
  compiler.compile(p.join_ranges, "join_ranges");
  compiler.compile_tiles(p.gemm_store, "gemm_store");
  compiler.compile_tiles(p.gemm_add, "gemm_add");
  compiler.compile_tiles(p.gemm_down, "gemm_down");
  compiler.compile_tiles(p.gemm_down_add, "gemm_down_add");
  for (const int gate : kBits)
    compiler.compile_tiles(p.gemm_gated[bits_index(gate)], fmt::format("gemm_gated_q{}", gate));
  compiler.compile(p.norm_rows, "norm_rows");
  compiler.compile(p.convolve_rows, "convolve_rows");
  compiler.compile(p.keep_rows, "keep_rows");
  compiler.compile(p.prepare_chunks, "prepare_chunks");
  compiler.compile(p.run_chunks, "run_chunks");
  compiler.compile(p.gated_norm, "gated_norm");
  compiler.compile(p.attend_rows, "attend_rows");
  compiler.compile(p.zero_counts, "zero_counts");
  compiler.compile(p.choose_rows, "choose_rows");
  compiler.compile(p.list_tiles, "list_tiles");
  compiler.compile(p.place_rows, "place_rows");
  compiler.compile(p.combine_rows, "combine_rows");
  compiler.compile(p.argmax_parts, "argmax_parts");
  compiler.compile(p.argmax_join, "argmax_join");
  compiler.compile(p.find_largest, "find_largest");
  compiler.compile(p.count_bins, "count_bins");
  compiler.compile(p.collect_candidates, "collect_candidates");
  LILY_TRY_VOID(std::move(compiler).status());
  device.store_pipelines();
  return p;
}

}  // namespace lily::metal
