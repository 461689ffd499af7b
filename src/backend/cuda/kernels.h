// What the host knows of the kernels: one struct of arguments and one launching function each. Pointers are
// device pointers; sizes follow the alphabet of model/shapes.h. T is the number of rows.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "backend/cuda/packed.h"

namespace lily::cuda {

/// What kernels need to know of the card.
struct Device {
  int multiprocessors = 1;
  bool overlap = false;  ///< programmatic dependent launch (compute capability 9.0)
  bool hopper = false;   ///< wgmma: exactly 9.0
  int shared_bytes = 0;  ///< a block may have
};
struct Launch {
  const Device* device;
  cudaStream_t stream;
};

/// Keeps the first failure for take_error().
void note_error(cudaError_t error, const char* what);

inline constexpr int kHeadDim = 256;
inline constexpr int kLinearDim = 128;
inline constexpr int kRotary = 64;
inline constexpr int kPageTokens = 256;
inline constexpr int kConvRing = 4;       ///< rows before the convolution that a slot keeps, by position % 4
inline constexpr int kMaxQueryGroup = 8;  ///< query heads a KV head
inline constexpr int kMaxExpertsPerToken = 16;
inline constexpr int kMaxExperts = 512;
inline constexpr int kMostContracted = 512 * 64;  ///< inputs of the chosen and shared experts together
inline constexpr int kAttentionSplits =
    64;  ///< ranges of K/V rows that a decoding row's attention is cut into

/// Rows of a step as the kernels see them.
struct Rows {
  const int* token = nullptr;     ///< [T]
  const int* position = nullptr;  ///< [T]
  const int* slot = nullptr;      ///< [T]
  const int* table = nullptr;     ///< [T], row of `pages`
  const int* pages = nullptr;     ///< [segments, page_stride]
  int page_stride = 0;
  float* rope = nullptr;  ///< [T, 64]: 32 cosines, 32 sines
  int count = 0;
};
/// A prefill segment.
struct SegmentRows {
  int first_row;
  int rows;
  int position;
  int slot;
  int table;
  int first_chunk;
  int chunks;
};

/// States of all sequences. A slot's layer: S [Hv, Dk, Dv], then ring [4, C]. A page: [attention layer]
/// [K|V][Nkv][256][D] bf16.
struct SlotView {
  float* layer = nullptr;  ///< this layer in slot 0
  std::int64_t stride = 0;
};
struct PageView {
  __nv_bfloat16* layer = nullptr;  ///< this layer in page 0
  std::int64_t stride = 0;
  int kv_heads = 0;
};

/// A row of activations in digits (digits.cuh), of so many groups of 64.
LILY_HD constexpr std::int64_t digits_bytes(int groups) {
  return static_cast<std::int64_t>(groups) * (2 * 64 + 4 * 8 + 4 * 4);
}

/// Of how many such rows a block has room, beside what else it keeps in shared memory.
[[nodiscard]] inline int most_digit_rows(const Device& device, int groups) {
  constexpr int kBeside = 12 << 10;
  return static_cast<int>((device.shared_bytes - kBeside) / digits_bytes(groups));
}

// ---- both phases

struct EmbedArgs {
  const std::uint8_t* codes;    ///< [V, H bits / 8]
  const std::uint16_t* scales;  ///< [V, H / group_size]
  const std::uint16_t* biases;
  int bits;
  int group_size;
  int hidden;
  const double* frequencies;  ///< [32]
  Rows rows;
  float* residual;       ///< out [T, H]
  const float* gain;     ///< of the first norm [H]; null for prefill
  std::uint8_t* normed;  ///< out, rows of digits: residual times gain
};
void embed(const Launch&, const EmbedArgs&);

/// RMSNorm of rows, then a product, with f32 activations in two int8 digits.
struct NormedProductArgs {
  const std::uint8_t* normed;  ///< rows of digits, or null: they are made from the next three
  const float* residual;       ///< [T, H]
  const int* row_index;        ///< rows of `residual`, or null for 0..T-1
  const float* gain;           ///< [H]
  float eps;
  Packed matrix;
  float* out;  ///< [T, out_stride]
  std::int64_t out_stride;
  int out_limit;  ///< channels to store
  int rows;
};
void project(const Launch&, const NormedProductArgs&);        ///< a decoding row's in-projection
void head(const Launch&, const NormedProductArgs&);           ///< the LM head
void router_logits(const Launch&, const NormedProductArgs&);  ///< the router alone, for prefill

/// Largest logit of each row, lowest index on ties, among the first `limit`.
struct ArgmaxArgs {
  const float* logits;  ///< [T, V]
  std::int64_t stride;
  int limit;
  int rows;
  float* partial_value;  ///< [T, kArgmaxBlocks]
  int* partial_index;
  int* out;  ///< [T]
};
inline constexpr int kArgmaxBlocks = 64;
void argmax(const Launch&, const ArgmaxArgs&);

/// The logits nearest each row's largest, among the first `limit`.
inline constexpr int kCandidateBlocks = 64;
inline constexpr int kCandidateBins = 1024;
inline constexpr int kMostCandidates = 1024;
struct RowCandidates {
  int count;                         ///< of `list`; 0 where a logit is no number
  float left_out[kCandidateBlocks];  ///< the largest logit of each block's share that is not listed
  struct {
    int id;
    float logit;
  } list[kMostCandidates];  ///< in no order
};
struct CandidateArgs {
  const float* logits;  ///< [T, V]
  std::int64_t stride;
  int limit;
  int rows;
  float* largest;      ///< scratch [T, kCandidateBlocks]
  int* bins;           ///< scratch [T, kCandidateBins]
  RowCandidates* out;  ///< [T]
};
void list_candidates(const Launch&, const CandidateArgs&);

// ---- decoding: one row a sequence

inline constexpr int kDeltaBlocks = 4;  ///< blocks that share the columns of a head
struct DeltaDecodeArgs {
  const float* projected;  ///< [T, stride]: qkv C, z, b, a
  int stride;
  int a_offset;
  int b_offset;
  int key_heads;
  int value_heads;
  const float* taps;     ///< [C, 4]
  const float* A_log;    ///< [Hv]
  const float* dt_bias;  ///< [Hv]
  int z_offset;
  const float* gain;  ///< of the gated norm [128]
  SlotView state;
  Rows rows;
  std::uint8_t* out;  ///< rows of digits: o gain silu(z), the gated norm but for its RMS factor; squares of o
};
void delta_decode(const Launch&, const DeltaDecodeArgs&);

/// silu(gate) * up of normed rows.
struct GatedProductArgs {
  const std::uint8_t* normed;  ///< rows of digits
  float eps;
  Packed matrix;      ///< gated, F columns
  std::uint8_t* out;  ///< rows of digits [T, F], in parts of 16 inputs
  int rows;
};
void gated_product(const Launch&, const GatedProductArgs&);

/// residual += matrix * input.
struct OutProductArgs {
  const std::uint8_t* input;  ///< rows of digits
  bool gated;                 ///< whether they are gated_product()'s, whose parts are others
  bool norm_heads;  ///< whether heads of 128 inputs are to be divided by their RMS, from the squares
  float eps;
  Packed matrix;
  float* residual;  ///< [T, H]
  const float* next_gain;
  std::uint8_t* normed;  ///< out, rows of digits: residual times next_gain
  int rows;
};
void out_product(const Launch&, const OutProductArgs&);

struct AttentionDecodeArgs {
  const float* projected;  ///< [T, stride]: per head 256 query and 256 gate channels, then K, then V
  int stride;
  int query_heads;
  const float* q_gain;  ///< [256]
  const float* k_gain;
  float eps;
  PageView cache;
  Rows rows;
  float* partial;      ///< [T, Nkv, splits, 8, 256]
  float* partial_max;  ///< [T, Nkv, splits, 8, 2]: largest exponent, sum
  bool heads_apart;    ///< whether each query head reads the K/V rows for itself
  std::uint8_t* out;   ///< rows of digits [T, Nq 256], gated
};
void attention_decode(const Launch&, const AttentionDecodeArgs&);

struct MoeDecodeArgs {
  float* residual;       ///< [T, H]
  std::uint8_t* normed;  ///< rows of digits: residual times this norm's gain; then times the next one's
  const float* next_gain;
  float eps;
  Packed router;     ///< E rows, then from an even row on the shared expert's gate
  Packed shared_in;  ///< gated, S columns
  Packed shared_out;
  Packed experts_in;  ///< gated, I columns
  Packed experts_out;
  int experts;
  int experts_per_token;
  int shared_gate;  ///< its channel in `router`
  float* logits;    ///< [T, logits_stride]
  int logits_stride;
  std::uint8_t* expanded;  ///< rows of digits [T, K I + S]: of the chosen experts, then of the shared one
  int rows;
};
void moe_decode(const Launch&, const MoeDecodeArgs&);

// ---- prefill

struct NormArgs {
  const float* residual;  ///< [T, H]
  const float* gain;
  float eps;
  int hidden;
  int rows;
  __nv_bfloat16* out;  ///< [T, H]
};
void norm_rows(const Launch&, const NormArgs&);

/// Rows [start, start + n) of one expert's (or the only) list; height = n in 16s, rounded up to one that has
/// a kernel.
struct Tile {
  int expert;
  int start;
  int n;
  int height;
};
enum class TileSet { kShort, kTall };
struct TileListArgs {
  const int* counts;  ///< [experts], or null: one list of `rows` rows
  int experts;
  int rows;
  int most_rows;  ///< of a tile
  Tile* tiles;    ///< out
  int* count;     ///< out
  TileSet set;
};
void list_tiles(const Launch&, const TileListArgs&);
/// Tiles that a list can have.
int most_tiles(int rows, int experts);

enum class GemmOut {
  kStore,   ///< bf16
  kAdd,     ///< f32 +=
  kSwiglu,  ///< bf16, gated matrices
  kScaled,  ///< bf16, times row_weight
};
struct GemmArgs {
  const __nv_bfloat16* input;  ///< [rows, in]
  const int* row_index;        ///< list row -> input row, or null for the same
  Packed matrix;
  const Tile* tiles;
  const int* tile_count;
  int most_tiles;
  TileSet set;
  void* out;  ///< [list rows, out_stride]
  std::int64_t out_stride;
  int out_limit;            ///< channels (columns when gated) to store, a multiple of 4
  const float* row_weight;  ///< [list rows]
};
/// Hopper's wgmma where card and shapes allow, mma.sync elsewhere; never by the number of rows, since the two
/// may round differently.
void gemm(const Launch&, GemmOut, const GemmArgs&);
[[nodiscard]] bool hopper_gemm_takes(const Device&, const Packed&);
void hopper_gemm_store(const Launch&, const GemmArgs&);
void hopper_gemm_add(const Launch&, const GemmArgs&);
void hopper_gemm_swiglu(const Launch&, const GemmArgs&);
void hopper_gemm_scaled(const Launch&, const GemmArgs&);

/// A chunk: the rows of a segment whose positions share position / 64. What each chunk and value head
/// contributes, [chunk, Hv, ...], without the state it meets (prefill_delta.cu).
inline constexpr int kChunk = 64;
struct DeltaChunks {
  __nv_bfloat16* w;      ///< [64, 128]
  __nv_bfloat16* query;  ///< [64, 128]
  __nv_bfloat16* key;    ///< [64, 128]
  __nv_bfloat16* u;      ///< [64, 128]
  __nv_bfloat16* p;      ///< [64, 64]
  float* decay;          ///< of the whole chunk
};
struct DeltaPrefillArgs {
  const __nv_bfloat16* projected;  ///< [T, stride]
  int stride;
  int a_offset;
  int b_offset;
  int z_offset;
  int key_heads;
  int value_heads;
  const float* taps;
  const float* A_log;
  const float* dt_bias;
  const float* gain;  ///< [128]
  float eps;
  SlotView state;
  Rows rows;
  const SegmentRows* segments;  ///< device
  int segment_count;
  int chunk_count;        ///< of all segments
  const int* segment_of;  ///< [T]
  float* query;           ///< scratch [T, Hk 128]
  float* key;             ///< scratch [T, Hk 128]
  float* value;           ///< scratch [T, Hv 128], then the output before the norm
  float2* gates;          ///< scratch [T, Hv]: log decay, beta
  DeltaChunks chunks;     ///< scratch
  bool sequential;        ///< whether the delta rule goes token by token
  __nv_bfloat16* out;     ///< [T, Hv 128]
};
void delta_prefill(const Launch&, const DeltaPrefillArgs&);
void delta_chunks(const Launch&, const DeltaPrefillArgs&);      ///< its middle: `value` becomes the output
void delta_sequential(const Launch&, const DeltaPrefillArgs&);  ///< the same, token after token

/// Keys of a range of attention, doubled until eight ranges reach a row: a multiple of 64 and of a tile's
/// tokens.
inline constexpr int kLeastRange = 1024;
/// Two hundred rows' tiles in eight ranges each.
inline constexpr int kLeastPartialTiles = 256;
struct AttentionPrefillArgs {
  const __nv_bfloat16* projected;  ///< [T, stride]
  int stride;
  int query_heads;
  const float* q_gain;
  const float* k_gain;
  float eps;
  PageView cache;
  Rows rows;
  const SegmentRows* segments;
  int segment_count;
  int longest_segment;
  __nv_bfloat16* query;  ///< scratch [T, Nq 256]
  float* partial;        ///< scratch: what ranges of keys give, of partial_tiles tiles
  int partial_tiles;
  int least_range = kLeastRange;
  __nv_bfloat16* out;  ///< [T, Nq 256], gated
};
inline constexpr int kAttentionPartialFloats = 33 * 256 * 4;  ///< of a tile of 128 rows: 256 columns, softmax
/// Tiles of `partial` that a step of `rows` rows in `segments` segments may need.
[[nodiscard]] int attention_partial_tiles(std::int64_t rows, std::int64_t segments, int query_heads,
                                          int kv_heads);
void attention_prefill(const Launch&, const AttentionPrefillArgs&);

struct RouteArgs {
  const float* logits;  ///< [T, stride]
  int stride;
  int experts;
  int experts_per_token;
  int rows;
  int* chosen;     ///< scratch [T, K]
  int* place;      ///< scratch [T, K]; then list row of each choice
  float* weight;   ///< scratch [T, K]
  int* counts;     ///< out [E]
  int* row_index;  ///< out [T K]
  float* row_weight;
};
void route(const Launch&, const RouteArgs&);

struct CombineArgs {
  const __nv_bfloat16* expert_out;  ///< [T K, H], weighted
  const int* place;                 ///< [T, K]
  int experts_per_token;
  const __nv_bfloat16* shared_out;  ///< [T, H]
  const float* shared_gate;         ///< [T, stride]
  int shared_gate_stride;
  int hidden;
  int rows;
  float* residual;
};
void combine(const Launch&, const CombineArgs&);

// ---- loading

/// Rows of an MLX matrix to their places in a packed one.
struct PackArgs {
  const std::uint8_t* codes;    ///< [rows, in bits / 8], 16-byte aligned
  const std::uint16_t* scales;  ///< [rows, in / group_size]
  const std::uint16_t* biases;
  int bits;
  int group_size;  ///< a multiple of 64
  int rows;        ///< of all experts in this piece
  int rows_per_expert;
  int groups;
  int planes;     ///< of the packed matrix
  int first_row;  ///< of the first row, within its expert
  int first_expert;
  int channel_offset;  ///< of row 0, even
  int bank;            ///< of a gated matrix: 0 gate, 1 up; -1: not gated
  std::uint8_t* out;
  std::int64_t expert_bytes;
  int* too_large;  ///< set to 1 when a scale does not fit
};
void pack(const Launch&, const PackArgs&);

}  // namespace lily::cuda
