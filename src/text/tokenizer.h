// Byte-level BPE read from tokenizer.json: added tokens, NFC, the file's own split pattern, merges by rank.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace lily {

/// Whether control strings in the text ("<|im_end|>", "<think>") become their ids or stay ordinary text.
enum class AddedTokenMatching { kMatch, kLiteral };

class Tokenizer {
 public:
  /// Parses the text of a tokenizer.json. Errors name the part that this engine cannot honour.
  static Result<Tokenizer> parse(std::string_view tokenizer_json);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// UTF-8 text to ids, in time linear in its length (up to a logarithm inside one piece). Bytes that are not
  /// UTF-8 become U+FFFD. No token is added that the text does not hold. Thread-safe.
  [[nodiscard]] std::vector<TokenId> encode(std::string_view text,
                                            AddedTokenMatching matching = AddedTokenMatching::kMatch) const;

  /// The bytes an id stands for (possibly a fragment of a UTF-8 sequence); empty for ids without a token.
  [[nodiscard]] std::string_view bytes(TokenId id) const;
  /// All bytes concatenated, incomplete UTF-8 replaced by U+FFFD. Special tokens are kept unless
  /// `skip_special`.
  [[nodiscard]] std::string decode(std::span<const TokenId> ids, bool skip_special = false) const;

  /// The id of an added token by its text, e.g. "</think>".
  [[nodiscard]] std::optional<TokenId> added_token(std::string_view content) const;
  [[nodiscard]] bool is_special(TokenId id) const;  ///< added token with special = true
  [[nodiscard]] bool has_token(TokenId id) const;   ///< false for the padding rows of the embedding
  [[nodiscard]] TokenId end() const;                ///< one past the highest id that has a token

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lily
