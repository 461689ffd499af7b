// Tokens of preprocessed Metal source, each with its place in the file that the preprocessor's markers name.
#pragma once

#include <string_view>
#include <vector>

namespace lily::msl {

struct Token {
  enum class Kind { kSpace, kNewline, kMarker, kString, kWord, kNumber, kPunctuation };
  Kind kind = Kind::kSpace;
  std::string_view text;
  std::string_view file;
  int line = 0;

  [[nodiscard]] bool is_code() const { return kind > Kind::kMarker; }
};

/// Every byte of `text` is in one token. `[[` and `]]` are one token where they enclose an attribute; the
/// second is two where it closes two subscripts. The views point into `text`.
[[nodiscard]] std::vector<Token> tokenize(std::string_view text);

}  // namespace lily::msl
