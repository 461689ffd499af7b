// Streaming ids to text: emits whole UTF-8 sequences only.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace lily {

class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  /// The text that `id` completes; may be empty, always valid UTF-8. Concatenated (with finish()) it equals
  /// decode().
  [[nodiscard]] std::string push(TokenId id);
  /// What is left: U+FFFD for an incomplete tail.
  [[nodiscard]] std::string finish();

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;  // the start of a UTF-8 sequence, at most 3 bytes
};

}  // namespace lily
