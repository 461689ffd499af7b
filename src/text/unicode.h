// What the tokenizer has to know about a code point: the classes of the reference tokenizer (Unicode 16) and
// how its NFC (Unicode 9) treats it. Our own table, because system libraries carry whatever Unicode version
// they were built with.
#pragma once

#include <cstdint>
#include <vector>

namespace lily {

enum CharFlags : std::uint8_t {
  kLetter = 1,      ///< \p{L}
  kMark = 2,        ///< \p{M}
  kNumber = 4,      ///< \p{N}
  kSpace = 8,       ///< \s: White_Space
  kNfcInert = 16,   ///< younger than the reference's NFC: a plain starter that never composes or moves
  kNfcUnsafe = 32,  ///< where one of these occurs, NFC may change the text
};

class UnicodeTable {
 public:
  /// Built at first use (about a millisecond); shared by all.
  static const UnicodeTable& instance();

  /// CharFlags of a code point below 0x110000.
  [[nodiscard]] std::uint8_t operator[](char32_t code_point) const { return flags_[code_point]; }

 private:
  UnicodeTable();
  std::vector<std::uint8_t> flags_;  // [0x110000]
};

/// What Python's str.strip() removes: White_Space and the four separators U+001C to U+001F.
[[nodiscard]] bool is_python_space(char32_t code_point);

}  // namespace lily
