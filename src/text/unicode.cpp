#include "text/unicode.h"

#include <algorithm>

namespace lily {
namespace {

struct Range {
  char32_t first;
  char32_t last;
  int flags;
};

constexpr int L = kLetter;
constexpr int M = kMark;
constexpr int N = kNumber;
constexpr int S = kSpace;
constexpr int I = kNfcInert;
constexpr int U = kNfcUnsafe;
constexpr Range kRanges[] = {
#include "text/unicode_ranges.inc"
};

}  // namespace

const UnicodeTable& UnicodeTable::instance() {
  static const UnicodeTable table;
  return table;
}

UnicodeTable::UnicodeTable() : flags_(0x110000, 0) {
  for (const Range& range : kRanges) {
    std::fill(flags_.begin() + static_cast<std::ptrdiff_t>(range.first),
              flags_.begin() + static_cast<std::ptrdiff_t>(range.last) + 1,
              static_cast<std::uint8_t>(range.flags));
  }
}

bool is_python_space(char32_t code_point) {
  return (UnicodeTable::instance()[code_point] & kSpace) != 0 || (code_point >= 0x1C && code_point <= 0x1F);
}

}  // namespace lily
