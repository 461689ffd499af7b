// The parts of a tokenizer.json that this engine honours, checked; everything else is refused by name.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace lily {

/// One entry of `added_tokens`: text that becomes one id wherever it stands.
struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool lstrip = false;      ///< takes the white space before it along
  bool rstrip = false;      ///< takes the white space after it along
  bool normalized = false;  ///< matched in the normalised text, not the raw one
  bool special = false;     ///< control token: no text of its own in an answer
};

struct TokenizerFile {
  std::vector<AddedToken> added_tokens;
  bool nfc = false;
  std::string split_pattern;
  bool ignore_merges = false;  ///< a piece that is a token is taken whole, without merging
  /// Tokens in the byte alphabet with their ids, and merges in order of rank. The views point into `text`.
  std::vector<std::pair<std::string_view, TokenId>> vocab;
  std::vector<std::pair<std::string_view, std::string_view>> merges;
  std::string text;

  TokenizerFile() = default;
  TokenizerFile(const TokenizerFile&) = delete;  // a copy would point into the original
  TokenizerFile& operator=(const TokenizerFile&) = delete;
  TokenizerFile(TokenizerFile&&) = delete;  // so would a moved short string
  TokenizerFile& operator=(TokenizerFile&&) = delete;
};

/// Fills `file` from the text of a tokenizer.json. kCorrupt for what no tokenizer.json is, kUnsupported for a
/// part that is well-formed but not honoured.
Result<void> read_tokenizer_file(std::string_view json, TokenizerFile& file);

}  // namespace lily
