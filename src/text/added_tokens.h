// Finds added tokens ("<|im_end|>", "<think>") in text: leftmost, and the longest of those that start there.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "text/tokenizer_file.h"

namespace lily {

class AddedTokens {
 public:
  /// `tokens` are matched as their flags say; `normalized` ones against text that was normalised like their
  /// content.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  struct Segment {
    std::string_view text;
    std::optional<TokenId> id;  ///< nothing: ordinary text
  };
  /// Appends `text` cut into added tokens and the ordinary text between them. With `normalized` the tokens
  /// that match in normalised text are looked for, without it the others.
  void split(std::string_view text, bool normalized, std::vector<Segment>& out) const;

  [[nodiscard]] const std::vector<AddedToken>& all() const { return tokens_; }
  [[nodiscard]] const AddedToken* find(std::string_view content) const;

 private:
  [[nodiscard]] const AddedToken* longest_at(std::string_view text, bool normalized) const;

  std::vector<AddedToken> tokens_;                        // longest content first
  std::array<std::vector<std::size_t>, 256> by_first_{};  // first byte -> indices, longest content first
};

}  // namespace lily
