// The kernels by name, compiled when the backend starts.
#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "backend/metal/gpu_device.h"

namespace lily::metal {

/// Of kernels that exist for 4 and 8 bits: what codes lie in on the device.
[[nodiscard]] constexpr std::size_t bits_index(int bits) {
  return bits == 8 ? 1 : 0;
}
/// Of kernels for 1, 2 and 4 rows: those that `rows` are divided among.
[[nodiscard]] constexpr std::size_t tokens_index(std::int64_t rows) {
  return rows > 2 ? 2 : rows > 1 ? 1 : 0;
}
[[nodiscard]] constexpr std::int64_t tokens_of(std::size_t index) {
  return std::int64_t{1} << index;
}

struct Pipelines {
  using Pipeline = std::unique_ptr<GpuPipeline>;
  using ByBits = std::array<Pipeline, 2>;
  using ByBitsAndTokens = std::array<std::array<Pipeline, 3>, 2>;
  using ByBitsAndHeight = std::array<std::array<Pipeline, 2>, 2>;  ///< tiles of kTileRows, of kTallTileRows
  using ByTwoBits = std::array<ByBits, 2>;

  ByBits embed;
  ByBitsAndTokens project;
  ByBitsAndTokens add_plain;
  ByBitsAndTokens add_gated_norm;
  ByTwoBits gated;        ///< [gate][up]
  ByTwoBits experts_in;   ///< [gate][up]
  ByTwoBits experts_out;  ///< [experts][shared]
  Pipeline delta_decode;
  Pipeline prepare_heads;
  Pipeline attend_ranges;
  Pipeline join_ranges;
  ByBitsAndHeight gemm_store;
  ByBitsAndHeight gemm_add;
  ByBitsAndHeight gemm_down;
  ByBitsAndHeight gemm_down_add;
  std::array<ByBitsAndHeight, 2> gemm_gated;  ///< [gate][up]
  Pipeline norm_rows;
  Pipeline convolve_rows;
  Pipeline keep_rows;
  Pipeline prepare_chunks;
  Pipeline run_chunks;
  Pipeline gated_norm;
  Pipeline attend_rows;
  Pipeline zero_counts;
  Pipeline choose_rows;
  Pipeline list_tiles;
  Pipeline place_rows;
  Pipeline combine_rows;
  Pipeline argmax_parts;
  Pipeline argmax_join;
  Pipeline find_largest;
  Pipeline count_bins;
  Pipeline collect_candidates;

  /// All of them, or the first that this device cannot run. `small_groups`: weights in groups of 32, else of
  /// 64.
  [[nodiscard]] static Result<Pipelines> compile(GpuDevice& device, bool small_groups);
};

}  // namespace lily::metal
