// Products of a prompt's rows on AMX: weights dequantised to bf16 on the way, tiles of 16 x 16 outputs summed
// in f32.
//
// TDPBF16PS adds to C [16][16] the product of A [16][32] and B [32][16] in 16 clocks: 512 multiply-adds a
// clock where VNNI has 64. Weight rows are A, as they lie: 32 inputs of one row are one vector. Activations
// are B, whose rows are pairs of inputs; so they are kept transposed, a 32-bit word a pair and token
// (Bf16Rows), and any 16 tokens in a row are one tile.
//
// A code is looked up, not computed: the 16 weights that a group of a row can have are one vector of bf16,
// s q + b rounded once, and VPERMW picks 32 of them by the lowest bits of 32 words. So 64 weights cost four
// vector operations beside their table, whatever the number of tokens they meet.
//
// Both operands are rounded to bf16 (0.1 % of a number, against 0.7 % of 8-bit activations with a scale for
// 64), so one precision serves all products.
#pragma once

#include <immintrin.h>

#include "backend/cpu/matmul_impl.h"

namespace lily::cpu {
namespace {

constexpr int kTileRows = 16;
constexpr int kTileBytes = 1024;
constexpr int kBlockTiles = 2;                   // side by side, of rows and of tokens
constexpr int kBlock = kBlockTiles * kTileRows;  // rows, and tokens, of four tiles of sums
constexpr int kDeepGroups = 4;                   // of a block of rows at once, when many tokens meet it
constexpr std::int64_t kTileTokens = 256;        // that a block of rows meets before it is forgotten
constexpr std::int64_t kGatheredTokens = 2 * kScratchRows;  // bf16 in the room of f32

/// Both as bf16, rounded to nearest even.
LILY_INLINE __m512i narrow(__m512 first, __m512 second) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
}

// ---- activations ----

/// 64 activations as bf16, evens before odds.
LILY_INLINE void store_bf16_group(const float* x, const Bf16Rows& out, std::int64_t token, std::int64_t group,
                                  std::int64_t in) {
  const __m512i odds_of_pair = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  const __m512i evens_of_pair = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  __m512 v[4];
  for (int i = 0; i < 4; ++i) v[i] = _mm512_loadu_ps(x + i * kLanes);
  std::uint16_t* row = out.rows + token * in + group * kGroup;
  std::uint32_t* column =
      out.words + (token / kTileRows * in / 2 + group * (kGroup / 2)) * kTileRows + token % kTileRows;
  for (int half = 0; half < 2; ++half) {
    const __m512i index = half == 0 ? evens_of_pair : odds_of_pair;
    const __m512 first = _mm512_permutex2var_ps(v[0], index, v[1]);
    const __m512 second = _mm512_permutex2var_ps(v[2], index, v[3]);
    const __m512i numbers = narrow(first, second);
    _mm512_storeu_si512(row + half * (kGroup / 2), numbers);
    alignas(64) std::uint32_t words[16];
    _mm512_store_si512(words, numbers);
    for (int i = 0; i < 16; ++i) column[(half * 16 + i) * kTileRows] = words[i];
  }
}

void quantize_amx(const QuantizeArgs& args) {
  if (!args.by_group) return quantize(args);
  for (std::int64_t i = 0; i < args.groups; ++i) {
    store_bf16_group(args.values + i * kGroup, args.out.bf16, args.token, args.first_group + i,
                     args.row_groups * kGroup);
  }
}

/// Words of tokens that do not lie in tiles, copied to `out`: those of tokens [first, first + count) of the
/// list.
LILY_INLINE const std::uint32_t* gather_words(const MatmulArgs& a, std::int64_t first, std::int64_t count,
                                              std::uint32_t* out) {
  std::uint32_t* next = out;
  for (std::int64_t t = 0; t < count; t += kTileRows) {
    const std::uint16_t* rows[kTileRows];
    for (int i = 0; i < kTileRows; ++i) {
      const std::int64_t at = t + i < count ? t + i : count - 1;
      rows[i] = a.quantized.bf16.rows + a.tokens[first + at] * a.in;
    }
    for (std::int64_t c = 0; c < a.in; c += 2 * kTileRows) {
      U32 words[kTileRows];
      for (int i = 0; i < kTileRows; ++i) words[i] = load<U32>(rows[i] + c);
      transpose<kTileRows>(words);
      for (int i = 0; i < kTileRows; ++i, next += kTileRows) store(next, words[i]);
    }
  }
  return out;
}

/// Whether the tokens are whole tiles as they lie.
LILY_INLINE bool lie_in_tiles(const std::int32_t* tokens, std::int64_t count) {
  if (tokens == nullptr) return true;
  if (tokens[0] % kTileRows != 0) return false;
  for (std::int64_t i = 1; i < count; ++i) {
    if (tokens[i] != tokens[0] + i) return false;
  }
  return true;
}

// ---- weights ----

/// The factors of some groups of a block of rows, widened.
struct BlockFactors {
  float scales[kBlock][kScaleGroups];
  float biases[kBlock][kScaleGroups];
};

LILY_INLINE const std::byte* row_at(const std::byte* first, std::int64_t stride, int row, int rows) {
  return first + (row < rows ? row : rows - 1) * stride;
}

/// Those of kScaleGroups groups from `group` on, or of as many as there are.
LILY_INLINE void load_factors(const WeightRows& w, int rows, std::int64_t group, BlockFactors& out) {
  const __mmask16 mask = first_lanes(w.groups - group < kScaleGroups ? w.groups - group : kScaleGroups);
  for (int r = 0; r < kBlock; ++r) {
    store(out.scales[r], load_bf16_masked(mask, row_at(w.scales, w.scale_stride, r, rows) + group * 2));
    store(out.biases[r], load_bf16_masked(mask, row_at(w.biases, w.scale_stride, r, rows) + group * 2));
  }
}

/// The codes of a group of a row: 32 words, of two codes (4 bits) or one byte each of two (8 bits).
template <int kBits>
LILY_INLINE __m512i load_pairs(const std::byte* codes) {
  if constexpr (kBits == 4)
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
  return _mm512_loadu_si512(codes);
}

/// The weights of a group of a row, evens and odds.
template <int kBits>
LILY_INLINE void dequantize_pairs(__m512i pairs, float scale, float bias, __m512i& evens, __m512i& odds) {
  const __m512 s = _mm512_set1_ps(scale);
  const __m512 b = _mm512_set1_ps(bias);
  if constexpr (kBits == 4) {
    const __m512 every_code = _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512 weights = _mm512_fmadd_ps(every_code, s, b);
    const __m512i table = narrow(weights, weights);  // twice: the fifth bit of an index is its neighbour's
    evens = _mm512_permutexvar_epi16(pairs, table);
    odds = _mm512_permutexvar_epi16(_mm512_srli_epi16(pairs, 4), table);
  } else {
    const auto widen = [&](__m256i words) {
      return _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_cvtepu16_epi32(words)), s, b);
    };
    const auto both = [&](__m512i words) {
      return narrow(widen(_mm512_castsi512_si256(words)), widen(_mm512_extracti64x4_epi64(words, 1)));
    };
    evens = both(_mm512_and_si512(pairs, _mm512_set1_epi16(0xff)));
    odds = both(_mm512_srli_epi16(pairs, 8));
  }
}

/// Groups [group, group + groups) of a block of rows as tiles: [group][evens, odds][2 tiles][16 rows][32].
struct WeightTiles {
  alignas(64) std::byte bytes[kDeepGroups][2][kBlockTiles][kTileBytes];
};

template <int kBits>
LILY_INLINE void fill_tiles(const WeightRows& w, int rows, const BlockFactors& factors, std::int64_t group,
                            std::int64_t groups, WeightTiles& tiles) {
  for (std::int64_t g = 0; g < groups; ++g) {
    prefetch_next_rows<kBits, kBlock>(w, group + g);
    const float* scale = factors.scales[0] + (group + g) % kScaleGroups;
    const float* bias = factors.biases[0] + (group + g) % kScaleGroups;
    for (int tile = 0; tile < kBlockTiles; ++tile) {
      // All loads before all stores: in turn, a load would wait for every store under way whose address has
      // its last twelve bits, and those of the rows' codes and of the tiles meet all the time.
      __m512i pairs[kTileRows];
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) {
        pairs[r] = load_pairs<kBits>(row_at(w.codes, w.code_stride, tile * kTileRows + r, rows) +
                                     (group + g) * (kBits * 8));
      }
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r, scale += kScaleGroups, bias += kScaleGroups) {
        __m512i evens;
        __m512i odds;
        dequantize_pairs<kBits>(pairs[r], *scale, *bias, evens, odds);
        _mm512_store_si512(tiles.bytes[g][0][tile] + r * 64, evens);
        _mm512_store_si512(tiles.bytes[g][1][tile] + r * 64, odds);
      }
    }
  }
}

// ---- products of tiles ----
//
// Tiles 0 to 3 are sums (rows by tokens, row-major), 4 and 5 weights, 6 and 7 activations.

struct TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// The sums of a block of rows and 32 tokens: [tile of rows][tile of tokens][16 rows][16 tokens].
struct BlockSums {
  alignas(64) float sums[kBlockTiles][kBlockTiles][kTileRows][kTileRows];
};

template <bool kTwo>
LILY_INLINE void zero_sums() {
  _tile_zero(0);
  _tile_zero(2);
  if constexpr (kTwo) {
    _tile_zero(1);
    _tile_zero(3);
  }
}
template <bool kTwo>
LILY_INLINE void load_sums(const BlockSums& s) {
  _tile_loadd(0, s.sums[0][0], 64);
  _tile_loadd(2, s.sums[1][0], 64);
  if constexpr (kTwo) {
    _tile_loadd(1, s.sums[0][1], 64);
    _tile_loadd(3, s.sums[1][1], 64);
  }
}
template <bool kTwo>
LILY_INLINE void store_sums(BlockSums& s) {
  _tile_stored(0, s.sums[0][0], 64);
  _tile_stored(2, s.sums[1][0], 64);
  if constexpr (kTwo) {
    _tile_stored(1, s.sums[0][1], 64);
    _tile_stored(3, s.sums[1][1], 64);
  }
}

/// sums += weights * activations over some groups, for one or two tiles of tokens, `apart` words from each
/// other.
template <bool kTwo>
LILY_INLINE void multiply_tiles(const WeightTiles& w, const std::uint32_t* words, std::int64_t apart,
                                std::int64_t groups) {
  for (std::int64_t g = 0; g < groups; ++g) {
    for (int half = 0; half < 2; ++half, words += kTileRows * kTileRows) {
      _tile_loadd(4, w.bytes[g][half][0], 64);
      _tile_loadd(6, words, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(5, w.bytes[g][half][1], 64);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kTwo) {
        _tile_loadd(7, words + apart, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
  }
}

/// Where along the input a stretch of groups lies.
struct Stretch {
  std::int64_t group;
  std::int64_t groups;
  bool first;
  bool last;
};

/// One block of tokens. When it is the only one its sums stay in their tiles from stretch to stretch.
template <bool kTwo>
LILY_INLINE void multiply_block(const WeightTiles& w, const std::uint32_t* words, std::int64_t in, bool only,
                                const Stretch& stretch, BlockSums& sums) {
  if (stretch.first) {
    zero_sums<kTwo>();
  } else if (!only) {
    load_sums<kTwo>(sums);
  }
  const std::int64_t apart = in / 2 * kTileRows;
  multiply_tiles<kTwo>(w, words + stretch.group * (kGroup / 2) * kTileRows, apart, stretch.groups);
  if (!only || stretch.last) store_sums<kTwo>(sums);
}

LILY_INLINE void emit_sums(const MatmulArgs& a, std::int64_t first, std::int64_t tokens, std::int64_t row,
                           int rows, BlockSums& s) {
  for (int m = 0; m < kBlockTiles && m * kTileRows < rows; ++m) {
    const int lanes = rows - m * kTileRows < kTileRows ? rows - m * kTileRows : kTileRows;
    for (int n = 0; n < kBlockTiles && n * kTileRows < tokens; ++n) {
      F32 y[kTileRows];
      for (int i = 0; i < kTileRows; ++i) y[i] = load_f32(s.sums[m][n][i]);
      transpose<kTileRows>(y);
      for (int t = 0; t < kTileRows && n * kTileRows + t < tokens; ++t) {
        const std::int64_t token = first + n * kTileRows + t;
        float* out = out_row(a, token, row + m * kTileRows);
        if (lanes == kTileRows) {
          emit(a, token, out, y[t]);
        } else {
          for (int r = 0; r < lanes; ++r) emit(a, token, out + r, y[t][r]);
        }
      }
    }
  }
}

/// A block of rows against tokens [first, first + count), at most kTileTokens.
template <int kBits>
void multiply_rows(const MatmulArgs& a, std::int64_t row, std::int64_t first, std::int64_t count,
                   const std::uint32_t* words) {
  const int rows = static_cast<int>(a.row_end - row < kBlock ? a.row_end - row : kBlock);
  const WeightRows w = weight_rows(a, row);
  const bool only = count <= kBlock;
  BlockFactors factors;
  WeightTiles tiles;
  BlockSums sums[kTileTokens / kBlock];
  for (std::int64_t g = 0; g < w.groups; g += kDeepGroups) {
    const Stretch stretch = {g, w.groups - g < kDeepGroups ? w.groups - g : kDeepGroups, g == 0,
                             g + kDeepGroups >= w.groups};
    if (g % kScaleGroups == 0) load_factors(w, rows, g, factors);
    fill_tiles<kBits>(w, rows, factors, g, stretch.groups, tiles);
    for (std::int64_t t = 0; t < count; t += kBlock) {
      if (count - t > kTileRows) {
        multiply_block<true>(tiles, words + t * a.in / 2, a.in, only, stretch, sums[t / kBlock]);
      } else {
        multiply_block<false>(tiles, words + t * a.in / 2, a.in, only, stretch, sums[t / kBlock]);
      }
    }
  }
  for (std::int64_t t = 0; t < count; t += kBlock) {
    emit_sums(a, first + t, count - t < kBlock ? count - t : kBlock, row, rows, sums[t / kBlock]);
  }
}

/// Asks for the first block of rows in the order of addresses, in which memory is read fastest; the others
/// are asked for while the one before is worked on.
LILY_INLINE void prefetch_first_rows(const MatmulArgs& a) {
  const WeightRows w = weight_rows(a, a.row_begin);
  const std::int64_t rows = a.row_end - a.row_begin < kBlock ? a.row_end - a.row_begin : kBlock;
  for (std::int64_t i = 0; i < rows * w.scale_stride; i += 64) {
    __builtin_prefetch(w.scales + i);
    __builtin_prefetch(w.biases + i);
  }
  for (std::int64_t i = 0; i < rows * w.code_stride; i += 64) __builtin_prefetch(w.codes + i);
}

void matmul_prefill_amx(const MatmulArgs& a) {
  static_assert(kScaleGroups % kDeepGroups == 0);
  const TileConfig config;
  _tile_loadconfig(&config);
  const bool lies = lie_in_tiles(a.tokens, a.count);
  const std::int64_t most = lies ? kTileTokens : kGatheredTokens;
  for (std::int64_t first = 0; first < a.count; first += most) {
    const std::int64_t count = a.count - first < most ? a.count - first : most;
    const std::uint32_t* words =
        lies ? a.quantized.bf16.words + token_of(a, first) * a.in / 2
             : gather_words(a, first, count, reinterpret_cast<std::uint32_t*>(a.scratch));
    prefetch_first_rows(a);
    for (std::int64_t row = a.row_begin; row < a.row_end; row += kBlock) {
      a.bits == 4 ? multiply_rows<4>(a, row, first, count, words)
                  : multiply_rows<8>(a, row, first, count, words);
    }
  }
  _tile_release();
}

// ---- the peak ----

/// multiply_registers() in tiles: the four products of multiply_block, of ones.
Multiplied multiply_registers_amx(std::int64_t rounds) {
  const TileConfig config;
  _tile_loadconfig(&config);
  alignas(64) std::uint16_t ones[kTileBytes / 2];
  for (std::uint16_t& one : ones) one = 0x3f80;
  _tile_loadd(4, ones, 64);
  _tile_loadd(5, ones, 64);
  _tile_loadd(6, ones, 64);
  _tile_loadd(7, ones, 64);
  zero_sums<true>();
  for (std::int64_t i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  BlockSums s;
  store_sums<true>(s);
  _tile_release();
  constexpr std::int64_t kOfRound = kBlock * kBlock * 2 * kTileRows;  // 32 inputs
  Multiplied done{.count = rounds * kOfRound, .sum = 0};
  const float* sums = &s.sums[0][0][0][0];
  for (int j = 0; j < kBlock * kBlock; ++j) done.sum += static_cast<double>(sums[j]);
  return done;
}

}  // namespace
}  // namespace lily::cpu
