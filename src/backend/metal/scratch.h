// Activations of a step, between the kernels.
#pragma once

#include <cstdint>

#include "backend/metal/arena.h"
#include "backend/metal/device_weights.h"
#include "model/shapes.h"

namespace lily::metal {

/// Rows of logits that leave the device together.
inline constexpr std::int64_t kLogitsRows = 64;

/// Sizes that scratch follows from: rows of each phase.
struct StepLimits {
  std::int64_t prefill_rows = 0;
  std::int64_t prefill_chunks = 0;
  std::int64_t decode_rows = 0;
};

struct DecodeScratch {
  View projected;  ///< [D, width of the widest in-projection]
  View mixed;      ///< [D, mixer output]
  View squares;    ///< [D, Hv, kDeltaParts]
  View query;      ///< [Nkv, query_rows, 256] bf16
  View partial;    ///< attention's ranges
  View stats;
  View logits;    ///< router [D, E + 1]
  View shared;    ///< [D, S or F]: of the shared expert or the dense feed-forward
  View expanded;  ///< [D, K, I]
  View chosen;    ///< [D, K]
  View weights;   ///< [D, K]
};
struct PrefillScratch {
  View normed;     ///< [P, H] half
  View projected;  ///< [P, width]
  View mixed;      ///< [P, mixer output] half
  View query;      ///< [chunk rows, Hk 128]
  View key;
  View value;  ///< [chunk rows, Hv 128]
  View gates;  ///< [chunk rows, Hv]: log decay, beta
  View u;      ///< [chunks, Hv, kDeltaChunk, 128]
  View w;
  View p;                ///< [chunks, Hv, kDeltaChunk, kDeltaChunk]
  View sums;             ///< [chunks, Hv, kDeltaChunk]: of log decays
  View attention_query;  ///< [Nkv, query_rows, 256] bf16
  View logits;           ///< [P, E + 1]
  View chosen;           ///< [P, K]
  View place;            ///< [P, K]
  View weights;          ///< [P, K]
  View share;            ///< [P], of the shared expert
  View counts;           ///< [kMaxExperts]
  View first;            ///< [kMaxExperts]
  View tiles;            ///< [most_tiles]
  View row_index;        ///< [P K]
  View row_weight;       ///< [P K]
  View expanded;         ///< [P K, I] bf16
  View expert_out;       ///< [P K, H] bf16
  View shared;           ///< [P, S or F] bf16
};
/// Of kLogitsRows rows each.
struct CandidateScratch {
  View largest;   ///< [kCandidateGroups]
  View bins;      ///< [kCandidateBins]
  View counts;    ///< listed
  View list;      ///< [kMostCandidates]
  View left_out;  ///< [kCandidateParts]: the largest logits that are not listed
};
struct Scratch {
  View residual;  ///< [P + D, H], prefill rows first
  View wanted;    ///< [P + D], rows whose logits are wanted
  View logits;    ///< [kLogitsRows, V]
  View best_values;
  View best_indices;
  View best;  ///< [kLogitsRows]
  CandidateScratch candidates;
  DecodeScratch decode;
  PrefillScratch prefill;

  static Scratch place(Arena& arena, const Shapes& shapes, const DeviceWeights& weights,
                       const StepLimits& limits);
};

/// Tiles that the experts' lists of `rows` rows can have.
[[nodiscard]] std::int64_t most_tiles(const Shapes& shapes, std::int64_t rows);
/// Rows of a KV head's packed queries for `rows` rows: tiles are read whole.
[[nodiscard]] std::int64_t query_rows(const Shapes& shapes, std::int64_t rows);

}  // namespace lily::metal
