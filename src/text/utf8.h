// UTF-8: reading one sequence, replacing what is broken. Broken bytes are cut as Unicode recommends and as
// Rust and Python do it ("maximal subpart": each longest prefix of some valid sequence becomes one U+FFFD).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lily::utf8 {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// The forms of characters beyond ASCII (Unicode table 3-7): first byte, second byte, and how many more bytes
/// from 0x80 to 0xBF follow.
struct Form {
  std::uint8_t first_low;
  std::uint8_t first_high;
  std::uint8_t second_low;
  std::uint8_t second_high;
  std::uint8_t more;
};
inline constexpr std::array<Form, 8> kForms = {{{0xC2, 0xDF, 0x80, 0xBF, 0},
                                                {0xE0, 0xE0, 0xA0, 0xBF, 1},
                                                {0xE1, 0xEC, 0x80, 0xBF, 1},
                                                {0xED, 0xED, 0x80, 0x9F, 1},  // no surrogates
                                                {0xEE, 0xEF, 0x80, 0xBF, 1},
                                                {0xF0, 0xF0, 0x90, 0xBF, 2},
                                                {0xF1, 0xF3, 0x80, 0xBF, 2},
                                                {0xF4, 0xF4, 0x80, 0x8F, 2}}};

enum class Status {
  kValid,
  kInvalid,     ///< no continuation of these bytes is valid
  kIncomplete,  ///< the text ends inside a sequence that more bytes could complete
};

struct Sequence {
  Status status = Status::kValid;
  char32_t code_point = 0;  ///< U+FFFD unless valid
  std::size_t length = 0;   ///< bytes taken, 1..4
};

/// The first sequence of a text that is not empty.
[[nodiscard]] Sequence decode(std::string_view text);

[[nodiscard]] bool is_valid(std::string_view text);
/// The text with every broken part replaced by U+FFFD.
[[nodiscard]] std::string sanitize(std::string_view text);
/// For messages: in quotes, with quotes, backslashes, controls and what is no UTF-8 as \xNN. (fmt's {:?} ends
/// the program on some of it: version 9.1.)
[[nodiscard]] std::string quoted(std::string_view text);

void append(char32_t code_point, std::string& out);

/// Moves all that is decided from the front of `pending` to `out`: whole sequences as they are, broken ones
/// as U+FFFD. What stays is empty or the start of a sequence (at most 3 bytes).
void drain(std::string& pending, std::string& out);

}  // namespace lily::utf8
