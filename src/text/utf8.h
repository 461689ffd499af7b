// UTF-8: reading one sequence, replacing what is broken. Broken bytes are cut as Unicode recommends and as
// Rust and Python do it ("maximal subpart": each longest prefix of some valid sequence becomes one U+FFFD).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lily::utf8 {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

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

void append(char32_t code_point, std::string& out);

/// Moves all that is decided from the front of `pending` to `out`: whole sequences as they are, broken ones
/// as U+FFFD. What stays is empty or the start of a sequence (at most 3 bytes).
void drain(std::string& pending, std::string& out);

}  // namespace lily::utf8
