// Byte-level BPE: the vocabulary, the merges by rank, and the merging of one piece.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "text/tokenizer_file.h"

namespace lily {

/// (left id, right id) -> what they merge into. Open addressing: BPE asks it twice a byte.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank = 0;  ///< the lower, the earlier
    TokenId id = 0;
  };
  void reserve(std::size_t merges);
  void insert(TokenId left, TokenId right, Merge merge);
  /// Null where the two do not merge.
  [[nodiscard]] const Merge* find(TokenId left, TokenId right) const;

 private:
  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  [[nodiscard]] std::size_t slot_of(std::uint64_t key) const;

  std::vector<Slot> slots_;  // power of two, at most half full
};

class Bpe {
 public:
  /// kCorrupt when a byte has no token, an id has two, or a merge names a token that does not exist.
  static Result<Bpe> build(const TokenizerFile& file);

  /// Memory that encode() reuses from piece to piece.
  struct Scratch {
    struct Symbol {
      TokenId id = 0;  // kMerged once it became part of its left neighbour
      std::int32_t previous = -1;
      std::int32_t next = -1;
    };
    std::vector<Symbol> symbols;
    std::vector<std::uint64_t> heap;  // candidates, as (rank << 32) + index of the left symbol
  };

  /// Appends the ids of one piece: the pair of lowest rank merges first, the leftmost among equals. O(n log
  /// n).
  void encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const;

  /// Gives away the bytes of every id from 0 to the highest of the vocabulary; empty for ids without a token.
  [[nodiscard]] std::vector<std::string> take_tokens() { return std::move(tokens_); }

 private:
  void start(std::string_view piece, Scratch& scratch) const;
  [[nodiscard]] const MergeTable::Merge* merge_at(const Scratch& scratch, std::int32_t left) const;
  void push_candidate(Scratch& scratch, std::int32_t left) const;

  std::vector<std::string> tokens_;
  std::array<TokenId, 256> byte_ids_{};
  MergeTable merges_;
  std::unordered_map<std::string, TokenId> whole_;  // bytes -> id, filled only for ignore_merges
};

}  // namespace lily
