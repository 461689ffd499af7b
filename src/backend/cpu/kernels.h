// The table of kernels: what the CPU backend computes inside a parallel region, one table an instruction set.
//
// Every kernel works on the part of the output it is told to, allocates nothing, and computes each output
// element in an order that depends on the element alone: not on how many tokens or rows were asked for at
// once, nor on how the work was cut. Lengths along the input of a product are multiples of 64.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/kv_type.h"

namespace lily::cpu {

inline constexpr std::int64_t kGroup = 64;             ///< activations that share a scale, and most weights
inline constexpr std::int64_t kAttentionTile = 64;     ///< K/V rows attended to at once
inline constexpr std::int64_t kStateColumns = 32;      ///< value columns of a recurrent state kept together
inline constexpr std::int64_t kMostValueHeads = 8;     ///< that share a linear key head
inline constexpr std::int64_t kAttentionQueries = 64;  ///< most query vectors of one attention call

/// Which integers stand for activations. Fine ones are 256 times a coarse one plus a rest, so both lie in
/// memory as planes of int8: coarse products read the first, fine ones take a second dot product with the
/// same weights.
enum class Precision {
  kCoarse,  ///< 8 bits: x is about scale * high
  kFine,    ///< 16 bits: x is about scale / 256 * (256 * high + low)
};

/// The codes of one plane, in both orders.
struct CodePlane {
  std::int8_t* split = nullptr;
  std::int8_t* natural = nullptr;
};

/// Scale and scale * sum of the group's codes, a group, at one precision.
struct GroupFactors {
  float* scales = nullptr;
  float* sums = nullptr;
};

/// Activations in bf16, for kernels whose prompts multiply tiles of it. Within a group of 64 even inputs come
/// before odd ones, as in `split`.
struct Bf16Rows {
  std::uint16_t* rows = nullptr;  ///< [token][in]
  std::uint32_t* words =
      nullptr;  ///< the same in tiles, transposed: [token / 16][in / 2][token % 16], words of two
};

/// How quantised activations lie in memory; `capacity` tokens fit. A group's 64 codes are 32 of even index,
/// then 32 of odd index for 4-bit weights (`split`), which is the order in which masking a byte's nibbles
/// yields them; and in their own order for 8-bit weights (`natural`).
///
///   by token (decode):  split[token][evens in/2 | odds in/2]     natural[token][in] factors[token][in/64] by
///   group (prefill): split[group][token][evens 32 | odds 32]  natural[group][token][64]
///   factors[group][token]
struct QuantizedRows {
  CodePlane high;
  CodePlane low;
  GroupFactors coarse;
  GroupFactors fine;
  Bf16Rows bf16;  ///< where the planes are, in their place
  std::int64_t capacity = 0;

  [[nodiscard]] const GroupFactors& factors(Precision precision) const {
    return precision == Precision::kFine ? fine : coarse;
  }
};

/// Quantises consecutive groups of one token: 256 high + low = round(256 x / scale), scale = max|x| / 127
/// over a group.
struct QuantizeArgs {
  const float* values;  ///< [64 groups]
  QuantizedRows out;
  std::int64_t token;
  std::int64_t first_group;
  std::int64_t groups;      ///< how many to quantise
  std::int64_t row_groups;  ///< in / 64 of the whole row
  bool by_group;            ///< the layout
};

/// y[t][r] = sum_c w[r][c] * x[t][c] for rows [row_begin, row_end) of one matrix and a list of tokens.
struct MatmulArgs {
  const std::byte* weight;  ///< [out, in * bits / 8], unaligned
  const std::byte* scales;  ///< [out, in / group_size] bf16, unaligned
  const std::byte* biases;  ///< [out, in / group_size] bf16, unaligned
  std::int64_t in;
  int bits;        ///< for the integer kernels what has_integer_kernels() says, else 2, 3, 4, 5, 6 or 8
  int group_size;  ///< the same, else 32, 64 or 128
  std::int64_t row_begin;
  std::int64_t row_end;

  const float* values;         ///< f32 activations [*, in], for matmul_exact
  QuantizedRows quantized;     ///< integer activations, for the others
  Precision precision;         ///< of those
  const std::int32_t* tokens;  ///< [count] which activation rows; null for 0, 1, 2, ...
  std::int64_t count;

  float* out;  ///< element (token, row) is out[out_row * out_stride + row - out_origin]
  std::int64_t out_stride;
  std::int64_t out_origin;
  const std::int32_t* out_rows;  ///< [count]; null for 0, 1, 2, ...
  const float* factors;          ///< [count]; when given, out += factor * y in place of out = y
  bool accumulate;               ///< out += y (factor 1) in place of out = y
  float* scratch;                ///< at least matmul_scratch(in) floats of this thread
};

/// The formats that integer products are written for: every published checkpoint's, but for mixed ones.
[[nodiscard]] constexpr bool has_integer_kernels(int bits, int group_size) {
  return (bits == 4 || bits == 8) && group_size == kGroup;
}

/// Floats of scratch that a matrix product needs: so many rows.
inline constexpr std::int64_t kScratchRows = 64;
[[nodiscard]] constexpr std::int64_t matmul_scratch(std::int64_t in) {
  return kScratchRows * in;
}

/// One row of a matrix in f32.
struct DequantizeArgs {
  const std::byte* weight;
  const std::byte* scales;
  const std::byte* biases;
  std::int64_t in;
  int bits;
  int group_size;
  float* out;  ///< [in]
};

/// The gated delta rule of one key head and the value heads that share it, over the tokens of one segment in
/// order: convolution, SiLU, q/k normalisation, gates, recurrence, gated norm.
struct DeltaArgs {
  std::int64_t tokens;
  std::int64_t value_heads;  ///< that share this key head, r
  // Pre-convolution channels of token t: base[t * stride + c], c in [0, 128) (q, k) or [0, 128 r) (v).
  const float* q;
  const float* k;
  const float* v;
  const float* z;  ///< output gate, [128 r]
  const float* a;  ///< decay input, [r]
  const float* b;  ///< step-size input, [r]
  std::int64_t stride;
  // Convolution taps [channels, 4] and the last three pre-convolution rows [3, history_stride] (updated), for
  // the three channel ranges.
  const float* q_taps;
  const float* k_taps;
  const float* v_taps;
  float* q_history;
  float* k_history;
  float* v_history;
  std::int64_t history_stride;
  const float* a_log;    ///< [r]
  const float* dt_bias;  ///< [r]
  const float* norm;     ///< [128]
  float eps;
  float* state;  ///< [r][4 blocks of 32 value columns][128 key rows][32], updated
  float* out;    ///< out[t * out_stride + c], c in [0, 128 r)
  std::int64_t out_stride;
};

/// RMS norm over a head of 256, then rotation of its first 64 elements.
struct HeadNormArgs {
  float* head;        ///< [256], in place
  const float* gain;  ///< [256]
  float eps;
  const float* cosine;  ///< [32] of this position
  const float* sine;
};

// How K and V rows lie in memory: in blocks of 16 rows, as 4-byte words that hold the n values which one
// dot-product instruction adds up (n = 1 for f32, 2 for bf16, 4 for int8):
//
//   keys   [256 / n words][16 rows]              n consecutive elements of a row
//   values [16 parts][16 / n words][16 elements]  n consecutive rows of one element
//
// then, for int8, the scales of both: [4 groups of 64 elements][16 rows] f32. So attention reads both in
// order and transposes nothing.
inline constexpr std::int64_t kKvBlockRows = 16;

[[nodiscard]] constexpr std::int64_t kv_block_bytes(KvType type) {
  return kKvBlockRows * kv_row_bytes(type);
}

/// One K or V row, into its place among the blocks of a page.
struct StoreKvArgs {
  const float* row;  ///< [256]
  KvType type;
  bool value;          ///< V, or else K
  std::byte* blocks;   ///< [16 blocks] of this page, layer and KV head
  std::int64_t index;  ///< of the row in the page
};

/// Online-softmax attention of up to kAttentionQueries query vectors over K/V rows [begin, end) of one KV
/// head.
struct AttendArgs {
  const float* queries;  ///< [count padded to 8, 256], already divided by sqrt(256)
  std::int64_t count;
  const std::int64_t* positions;  ///< [count], ascending: query i sees rows 0..positions[i]
  const std::byte* keys;          ///< [page number][16 blocks] of this layer and KV head
  const std::byte* values;        ///< the same for V
  std::int64_t page_stride;       ///< bytes from one page number to the next
  const std::int32_t* pages;      ///< pages[t / 256] is the number of the page that holds row t
  std::int64_t begin;             ///< multiple of kAttentionTile
  std::int64_t end;
  float* largest;  ///< [count], running maximum of the scores; -inf to start
  float* total;    ///< [count], running sum of exp(score - largest); 0 to start
  float* sums;     ///< [count padded to 8, 256], running sum of exp(...) * v; 0 to start
  float* scratch;  ///< attend_scratch() floats of this thread
};

[[nodiscard]] constexpr std::int64_t attend_scratch() {
  return 2 * kAttentionTile * 256 + kAttentionQueries * kAttentionTile;
}

/// What multiplying ones by ones in registers came to.
struct Multiplied {
  std::int64_t count;  ///< multiply-adds
  double sum;          ///< of what they added up; the same number, as long as 1024 rounds do not overflow
};

struct Kernels {
  const char* isa;          ///< the option's value: "avx512"
  const char* description;  ///< "AVX-512 VNNI"
  /// Tokens that matmul_prefill takes at once: lists of consecutive ones that begin at a multiple are faster.
  std::int64_t token_tile;

  /// out = x / sqrt(mean(x^2) + eps) * gain, n a multiple of 64.
  void (*rms_norm)(const float* x, const float* gain, float eps, std::int64_t n, float* out);
  void (*quantize)(const QuantizeArgs& args);
  /// Integer products of weight codes and activation codes; `by token` activations, for segments of one
  /// token.
  void (*matmul_decode)(const MatmulArgs& args);
  /// The same for `by group` activations, for longer segments; or bf16 products of Bf16Rows.
  void (*matmul_prefill)(const MatmulArgs& args);
  /// f32 activations, dequantised weights of any format, f32 accumulation; for any segment.
  void (*matmul_exact)(const MatmulArgs& args);
  void (*dequantize)(const DequantizeArgs& args);
  /// out = SiLU(gate) * up, n a multiple of 64.
  void (*swiglu)(const float* gate, const float* up, std::int64_t n, float* out);
  void (*delta_rule)(const DeltaArgs& args);
  void (*head_norm)(const HeadNormArgs& args);
  /// bf16 is rounded to nearest even, int8 to nearest with scale = max|x| / 127 over 64 values.
  void (*store_kv)(const StoreKvArgs& args);
  // One for each KvType.
  void (*attend_f32)(const AttendArgs& args);
  void (*attend_bf16)(const AttendArgs& args);
  void (*attend_q8)(const AttendArgs& args);
  /// out = factor * x * sigmoid(gate), n a multiple of 64.
  void (*gate_output)(const float* x, float factor, const float* gate, std::int64_t n, float* out);
  // How fast a thread multiplies and adds without touching memory, by the instruction of the integer products
  // and by that of matmul_exact.
  Multiplied (*multiply_registers)(std::int64_t rounds);
  Multiplied (*multiply_registers_exact)(std::int64_t rounds);
};

/// The attention of a type of cache.
[[nodiscard]] inline auto attend_of(const Kernels& kernels, KvType type) {
  return type == KvType::kF32    ? kernels.attend_f32
         : type == KvType::kBf16 ? kernels.attend_bf16
                                 : kernels.attend_q8;
}

const Kernels& generic_kernels();
#if defined(__x86_64__)
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
const Kernels& avx512bf16_kernels();
const Kernels& amx_kernels();
#elif defined(__aarch64__)
const Kernels& neon_kernels();
#endif

}  // namespace lily::cpu
