// What host and shaders agree on: sizes, constants, and one struct of arguments per kernel, bound as
// `constant XArgs&`. Compiled as C++ and as Metal; fields are 4 bytes wide, so both lay them out alike.
// Sizes follow the alphabet of model/shapes.h; T is the number of rows of a step's phase.
#pragma once

#ifdef __METAL_VERSION__
#define LILY_SHARED constant constexpr
#else
#define LILY_SHARED inline constexpr
namespace lily::metal {
#endif

LILY_SHARED int kSimd = 32;
LILY_SHARED int kGroup = 64;  ///< inputs that a lane takes at a time
LILY_SHARED unsigned kSmallGroupsConstant =
    0;  ///< index of FC_SMALL_GROUPS: two scales and biases for them, else one
LILY_SHARED int kHeadDim = 256;
LILY_SHARED int kRotary = 64;
LILY_SHARED int kLinearDim = 128;
LILY_SHARED int kConvRing = 4;  ///< rows before the convolution that a slot keeps, by position % 4
LILY_SHARED int kPageTokens = 256;
LILY_SHARED int kMaxExperts = 512;
LILY_SHARED int kMaxExpertsPerToken = 16;

// ---- matrix-vector products

LILY_SHARED int kDotRows = 4;        ///< matrix rows that a lane sums at a time
LILY_SHARED int kDotSimdgroups = 4;  ///< of a threadgroup
LILY_SHARED int kMaxDotTokens = 4;   ///< activation rows that share one read of the weights
LILY_SHARED int kGatedColumns =
    2;  ///< columns of a gated product that a lane sums: as many rows of each half
LILY_SHARED int kExpertsOutRows = 16;  ///< outputs of a threadgroup of experts_out

/// Lanes that share a matrix row, a group of inputs each: 8, 16 or 32. The others take further rows.
#ifdef __METAL_VERSION__
inline
#else
constexpr
#endif
    int
    lanes_of_row(int in) {
  const int groups = in / kGroup;
  return groups > 16 ? 32 : groups > 8 ? 16 : 8;
}

struct EmbedArgs {
  int hidden;
  int rows;
};
/// RMSNorm of rows, then a product: out[t] = matrix * (norm(x[t]) * gain).
struct ProjectArgs {
  int in;
  int out;
  int out_stride;
  int rows;
  int indexed;  ///< row t is x[index[t]]
  float eps;
};
/// out[t] = SiLU(gate h) * (up h), h = norm(x[t]) * gain.
struct GatedArgs {
  int in;
  int out;
  int rows;
  float eps;
};
/// x[t] += matrix * input[t]; with a gate, input is normed per head of 128 and multiplied by SiLU(gate).
struct AddProductArgs {
  int in;
  int out;
  int rows;
  int gate_stride;
  float eps;
};

// ---- gated delta rule

LILY_SHARED int kDeltaColumns = 32;  ///< of a head's state, of a threadgroup
LILY_SHARED int kDeltaParts = kLinearDim / kDeltaColumns;
LILY_SHARED int kDeltaSimdgroups = 8;  ///< that hold the state
LILY_SHARED int kDeltaThreads = 2 * kLinearDim + kDeltaColumns;
LILY_SHARED int kDeltaChunk = 32;  ///< tokens of prefill that are solved together, on absolute positions
LILY_SHARED float kL2Epsilon = 1e-6f;
LILY_SHARED float kQueryScale = 0.08838834764831845f;  ///< 1 / sqrt(128)

struct DeltaArgs {
  int stride;  ///< of projected
  int z_offset;
  int b_offset;
  int a_offset;
  int key_heads;
  int value_heads;
  int slot_stride;   ///< floats from slot to slot
  int layer_offset;  ///< floats from a slot to this layer
  int rows;
  int chunks;  ///< of all prefill segments
  float eps;
};

// ---- attention

LILY_SHARED int kKeyTile = 32;     ///< keys of a softmax step
LILY_SHARED int kQueryTile = 8;    ///< query rows of a simdgroup
LILY_SHARED int kMaxRanges = 128;  ///< ranges of keys that a decoding row's attention is cut into
LILY_SHARED int kMinRangeKeys = 64;
LILY_SHARED int kRangeSimdgroups = 4;  ///< ranges of a threadgroup
LILY_SHARED int kHeadSimdgroups = 4;   ///< heads of a threadgroup of prepare_heads
LILY_SHARED float kNothing = -1e30f;   ///< below every score; no infinities under any maths mode

/// Keys of each range: a multiple of kKeyTile that depends on the length alone.
#ifdef __METAL_VERSION__
inline
#else
constexpr
#endif
    int
    range_keys(int length) {
  const int least = (length + kMaxRanges - 1) / kMaxRanges;
  const int keys = least > kMinRangeKeys ? least : kMinRangeKeys;
  return (keys + kKeyTile - 1) / kKeyTile * kKeyTile;
}

struct AttentionArgs {
  int stride;  ///< of projected: per head 256 query and 256 gate channels, then K, then V
  int query_heads;
  int kv_heads;
  int rows;
  int page_stride_table;      ///< entries of a row of the page table
  unsigned int page_stride;   ///< values from page to page
  unsigned int layer_offset;  ///< values from a page to this layer
  int query_rows;             ///< rows of the query scratch for each KV head
  float eps;
};

// ---- mixture of experts

struct MoeArgs {
  int hidden;
  int experts;
  int experts_per_token;
  int expert_width;
  int shared_width;
  int logits_stride;  ///< E logits, then the shared expert's gate
  int rows;
  float eps;
};

// ---- products of many rows

LILY_SHARED int kTileRows = 32;  ///< rows of a product's tile; a tall one spares half of the dequantisation
LILY_SHARED int kTallTileRows = 64;
LILY_SHARED int kTileColumns = 64;  ///< matrix rows of it; of a gated product half of them gate, half up
LILY_SHARED int kTileThreads = 128;
/// Rows [start, start + rows) of one expert's (or the only) list; none: nothing to do.
struct Tile {
  int expert;
  int start;
  int rows;
};
struct GemmArgs {
  int in;
  int out;
  int out_stride;
  int indexed;   ///< list row r is input[index[r]]
  int weighted;  ///< times weight[r]
};
struct NormArgs {
  int hidden;
  float eps;
};
struct RouteArgs {
  int experts;
  int experts_per_token;
  int logits_stride;
  int rows;
  int most_tiles;
  int tile_rows;
};
LILY_SHARED int kRouteSimdgroups = 4;  ///< rows of a threadgroup of choose_rows
LILY_SHARED int kPlaceThreads = 256;
LILY_SHARED int kRowThreads = 256;
struct CombineArgs {
  int hidden;
  int experts_per_token;
};

// ---- choosing

LILY_SHARED int kArgmaxGroups = 32;
LILY_SHARED int kArgmaxThreads = 256;
struct ArgmaxArgs {
  int stride;
  int limit;
};

LILY_SHARED int kCandidateGroups = 32;  ///< threadgroups that share a row of logits
LILY_SHARED int kCandidateThreads = 256;
LILY_SHARED int kCandidateParts = kCandidateGroups * kCandidateThreads / kSimd;
LILY_SHARED int kCandidateBins = 1024;
LILY_SHARED float kBinsALogit = 32.0f;    ///< the largest logit and what is up to 32 below it
LILY_SHARED int kWantedCandidates = 192;  ///< listed if bins end there, else up to kMostCandidates
LILY_SHARED int kMostCandidates = 1024;
LILY_SHARED float kUnusable = 1e30f;  ///< in place of a largest logit where one is no number
struct CandidateArgs {
  int stride;
  int limit;
};
struct ListedLogit {
  int id;
  float logit;
};

/// Rows of a prefill segment.
struct SegmentRows {
  int first_row;
  int rows;
  int position;
  int slot;
  int table;
  int first_chunk;
  int chunks;
};

#ifndef __METAL_VERSION__
}  // namespace lily::metal
#endif
