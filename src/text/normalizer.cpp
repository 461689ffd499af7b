#include "text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace lily {
namespace {

bool may_change(std::string_view text) {
  const UnicodeTable& table = UnicodeTable::instance();
  while (!text.empty()) {
    const utf8::Sequence sequence = utf8::decode(text);
    if ((table[sequence.code_point] & kNfcUnsafe) != 0) return true;
    text.remove_prefix(sequence.length);
  }
  return false;
}

int combining_class(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

void decompose(char32_t code_point, std::vector<utf8proc_int32_t>& out) {
  std::array<utf8proc_int32_t, 32> parts;  // the longest canonical decomposition has 4
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point), parts.data(), parts.size(),
                              static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE), nullptr);
  LILY_CHECK(count > 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()),
             "decomposition of U+{:04X}: {}", static_cast<unsigned>(code_point), count);
  out.insert(out.end(), parts.begin(), parts.begin() + count);
}

// Sorts a run of marks by class, keeping the order within a class: class, place and code point in one number.
void order_run(std::span<utf8proc_int32_t> run) {
  std::vector<std::uint64_t> keys;
  keys.reserve(run.size());
  for (std::size_t i = 0; i < run.size(); ++i) {
    keys.push_back((static_cast<std::uint64_t>(combining_class(run[i])) << 56) | (std::uint64_t{i} << 21) |
                   static_cast<std::uint64_t>(run[i]));
  }
  std::ranges::make_heap(
      keys);  // by heap, since std::sort recurses and a server's thread may have a small stack
  std::ranges::sort_heap(keys);
  for (std::size_t i = 0; i < run.size(); ++i) run[i] = static_cast<utf8proc_int32_t>(keys[i] & 0x1FFFFFU);
}

// Puts each run of marks into canonical order. utf8proc_map() does this by neighbour exchange, which a run of
// alternating classes makes quadratic: a prompt of 200,000 such marks would take minutes.
void order_marks(std::vector<utf8proc_int32_t>& code_points) {
  const auto is_starter = [](utf8proc_int32_t c) { return combining_class(c) == 0; };
  auto run = code_points.begin();
  while (run != code_points.end()) {
    run = std::find_if_not(run, code_points.end(), is_starter);
    const auto end = std::find_if(run, code_points.end(), is_starter);
    if (end - run > 1) order_run({run, end});
    run = end;
  }
}

// Appends the NFC of what was decomposed so far.
void flush(std::vector<utf8proc_int32_t>& code_points, std::string& out) {
  if (code_points.empty()) return;
  order_marks(code_points);
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  LILY_CHECK(count >= 0, "utf8proc_normalize_utf32: {}", count);
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    utf8::append(static_cast<char32_t>(code_points[static_cast<std::size_t>(i)]), out);
  }
  code_points.clear();
}

}  // namespace

std::string_view nfc(std::string_view text, std::string& storage) {
  if (!may_change(text)) return text;
  const UnicodeTable& table = UnicodeTable::instance();
  storage.clear();
  storage.reserve(text.size());
  std::vector<utf8proc_int32_t> code_points;
  while (!text.empty()) {
    const utf8::Sequence sequence = utf8::decode(text);
    if ((table[sequence.code_point] & kNfcInert) != 0) {
      // The reference's older tables see a starter that composes with nothing, so what lies left and right of
      // it is normalised apart, whatever newer tables say.
      flush(code_points, storage);
      storage += text.substr(0, sequence.length);
    } else {
      decompose(sequence.code_point, code_points);
    }
    text.remove_prefix(sequence.length);
  }
  flush(code_points, storage);
  return storage;
}

}  // namespace lily
