// The bytes of all tokens as a tree, so that a question asked of every token is asked once for what they
// begin with.
#pragma once

#include <bitset>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "text/tokenizer.h"

namespace lily {

/// A set of token ids: bit id % 64 of word id / 64.
using TokenMask = std::vector<std::uint64_t>;

inline void set_bit(TokenMask& mask, TokenId id) {
  mask[static_cast<std::size_t>(id) / 64] |= 1ULL << (static_cast<unsigned>(id) % 64);
}
[[nodiscard]] inline bool has_bit(std::span<const std::uint64_t> mask, TokenId id) {
  return (mask[static_cast<std::size_t>(id) / 64] >> (static_cast<unsigned>(id) % 64) & 1U) != 0;
}

class TokenTrie {
 public:
  /// A token and the bytes it stands for, not empty.
  struct Entry {
    std::string_view bytes;
    TokenId id;
  };
  /// In preorder; the children of a node follow it.
  struct Node {
    std::uint8_t byte;
    std::uint16_t depth;         ///< 1 for a first byte
    std::uint32_t next;          ///< the first node that is not below this one
    std::uint32_t tokens_begin;  ///< its tokens are [tokens_begin, tokens_end) of tokens()
    std::uint32_t tokens_end;
  };

  explicit TokenTrie(std::vector<Entry> entries);

  [[nodiscard]] std::span<const Node> nodes() const { return nodes_; }
  [[nodiscard]] std::span<const TokenId> tokens() const { return tokens_; }
  [[nodiscard]] std::size_t depth() const { return depth_; }  ///< bytes of the longest token

 private:
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;
  std::size_t depth_ = 0;
};

using ByteSet = std::bitset<256>;

/// The tokens that constrained text can be made of. Thread-safe.
class TokenVocabulary {
 public:
  /// All tokens with bytes, except special ones and those of the think block, which are not text.
  explicit TokenVocabulary(const Tokenizer& tokenizer);

  [[nodiscard]] const TokenTrie& all() const { return *all_; }
  [[nodiscard]] std::size_t mask_words() const { return words_; }

  /// The tokens made of `bytes` alone and of whole characters, as a mask, and a tree of the others. Kept once
  /// computed.
  struct Split {
    TokenMask inside;
    TokenTrie others;
  };
  [[nodiscard]] const Split& split(const ByteSet& bytes) const;

 private:
  std::vector<std::string> bytes_;
  std::vector<TokenTrie::Entry> entries_;
  std::size_t words_;
  std::unique_ptr<TokenTrie> all_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::unique_ptr<Split>> splits_;
};

}  // namespace lily
