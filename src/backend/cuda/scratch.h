// Activations of a step, between the kernels.
#pragma once

#include <cuda_bf16.h>

#include <array>
#include <cstdint>

#include "backend/cuda/device.h"
#include "backend/cuda/device_weights.h"
#include "backend/cuda/tiles.h"
#include "model/shapes.h"

namespace lily::cuda {

/// Rows of logits that leave the device together.
inline constexpr int kLogitsRows = 64;

/// Sizes that scratch follows from: rows of each phase.
struct StepLimits {
  std::int64_t prefill_rows;
  std::int64_t decode_rows;
};

struct DecodeScratch {
  std::uint8_t* normed;  ///< digits [D, H]: the residual times the next norm's gain
  float* projected;      ///< [D, width of the widest in-projection]
  std::uint8_t* mixed;   ///< digits [D, mixer output]
  float* partial;        ///< attention's ranges
  float* partial_max;
  float* logits;           ///< router [D, router channels]
  std::uint8_t* expanded;  ///< digits [D, K I + S]
};
struct PrefillScratch {
  __nv_bfloat16* normed;     ///< [P, H]
  __nv_bfloat16* projected;  ///< [P, width]
  __nv_bfloat16* mixed;      ///< [P, mixer output]
  float* query;              ///< [P, Hk 128]
  float* key;
  float* value;   ///< [P, Hv 128]
  float2* gates;  ///< [P, Hv]
  DeltaChunks chunks;
  __nv_bfloat16* attention_query;  ///< [P, Nq 256]
  float* attention_partial;        ///< of attention_partial_tiles
  int attention_partial_tiles;
  float* logits;  ///< [P, router channels]
  int* chosen;    ///< [P, K]
  int* place;
  float* weight;
  int* counts;     ///< [E]
  int* row_index;  ///< [P K]
  float* row_weight;
  std::array<Tile*, kDenseTileLists> dense_tiles;  ///< of at most 16, 32, 64, 128 rows
  std::array<int*, kDenseTileLists> dense_tile_count;
  Tile* expert_tiles;
  int* expert_tile_count;
  __nv_bfloat16* expanded;    ///< [P K, I]
  __nv_bfloat16* expert_out;  ///< [P K, H]
  __nv_bfloat16* shared;      ///< [P, S]
  __nv_bfloat16* shared_out;  ///< [P, H]
};
struct Scratch {
  float* residual;      ///< [P + D, H], prefill rows first
  double* frequencies;  ///< [32]
  float* logits;        ///< [kLogitsRows, V]
  float* best_value;    ///< greedy choice's partial results
  int* best_index;
  int* best;                  ///< [kLogitsRows]
  int* bins;                  ///< [kLogitsRows, kCandidateBins]
  RowCandidates* candidates;  ///< [kLogitsRows]
  int projected_stride;       ///< channels of the widest in-projection
  int router_stride;
  DecodeScratch decode;
  PrefillScratch prefill;

  static Scratch place(Layout& layout, const Shapes& shapes, const DeviceWeights& weights,
                       const StepLimits& limits);
};

}  // namespace lily::cuda
