#include <algorithm>

#include "text/pre_tokenizer.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace lily {

const std::string_view kQwenSplitPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

// One character of the text: its code point, flags and end. Past the text's end: no flags, and end ==
// position.
struct Char {
  char32_t code_point = 0;
  std::uint8_t flags = 0;
  std::size_t end = 0;

  [[nodiscard]] bool is(int mask) const { return (flags & mask) != 0; }
  [[nodiscard]] bool newline() const { return code_point == '\r' || code_point == '\n'; }
};

// Matches the pattern at a position. Each function is one alternative, in the pattern's order, and returns
// the end of its match, or `position` where it does not match.
class Matcher {
 public:
  explicit Matcher(std::string_view text) : text_(text), table_(UnicodeTable::instance()) {}

  // End of the match at `position`; the alternatives together match everywhere.
  [[nodiscard]] std::size_t match(std::size_t position) const {
    const Char first = at(position);
    std::size_t end = contraction(position, first);
    if (end == position) end = word(position, first);
    if (end == position && first.is(kNumber)) end = first.end;
    if (end == position) end = punctuation(position, first);
    if (end == position) end = blanks(position);
    return end;
  }

 private:
  [[nodiscard]] Char at(std::size_t position) const {
    if (position >= text_.size()) return {.end = position};
    const auto byte = static_cast<unsigned char>(text_[position]);
    if (byte < 0x80) return {byte, table_[byte], position + 1};
    const utf8::Sequence sequence = utf8::decode(text_.substr(position, 4));
    return {sequence.code_point, table_[sequence.code_point], position + sequence.length};
  }

  // (?i:'s|'t|'re|'ve|'m|'ll|'d)
  [[nodiscard]] std::size_t contraction(std::size_t position, const Char& first) const {
    if (first.code_point != '\'') return position;
    const Char second = at(first.end);
    const char32_t a = lower(second.code_point);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return second.end;
    const Char third = at(second.end);
    const char32_t b = lower(third.code_point);
    const bool two = (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l');
    return two ? third.end : position;
  }

  static char32_t lower(char32_t c) {
    if (c == 0x17F) return 's';  // the long s folds to s
    return c >= 'A' && c <= 'Z' ? c + 32 : c;
  }

  // [^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+
  [[nodiscard]] std::size_t word(std::size_t position, const Char& first) const {
    Char c = first;
    if (!c.is(kLetter | kMark)) {
      if (c.newline() || c.is(kNumber)) return position;
      c = at(first.end);
      if (!c.is(kLetter | kMark)) return position;
    }
    std::size_t end = c.end;
    for (c = at(end); c.is(kLetter | kMark); c = at(end)) end = c.end;
    return end;
  }

  //  ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*
  [[nodiscard]] std::size_t punctuation(std::size_t position, const Char& first) const {
    const auto is_other = [](const Char& c, std::size_t at) {
      return c.end != at && !c.is(kSpace | kLetter | kMark | kNumber);
    };
    const std::size_t start = first.code_point == ' ' ? first.end : position;
    std::size_t end = start;
    for (Char c = at(end); is_other(c, end); c = at(end)) end = c.end;
    if (end == start) return position;
    for (Char c = at(end); c.newline(); c = at(end)) end = c.end;
    return end;
  }

  // \s*[\r\n]+|\s+(?!\S)|\s+ : up to the run's last newline; else all but the last blank if a word follows
  // and there are several; else the run.
  [[nodiscard]] std::size_t blanks(std::size_t position) const {
    std::size_t end = position;
    std::size_t after_newline = position;
    std::size_t before_last = position;
    for (Char c = at(end); c.is(kSpace); c = at(end)) {
      before_last = end;
      end = c.end;
      if (c.newline()) after_newline = end;
    }
    if (after_newline != position) return after_newline;
    return end == text_.size() || before_last == position ? end : before_last;
  }

  std::string_view text_;
  const UnicodeTable& table_;
};

class QwenPreTokenizer final : public PreTokenizer {
 public:
  void split(std::string_view text, std::vector<std::string_view>& out) const override {
    const Matcher matcher(text);
    for (std::size_t position = 0; position < text.size();) {
      const std::size_t end = matcher.match(position);
      out.push_back(text.substr(position, end - position));
      position = end;
    }
  }
};

}  // namespace

std::unique_ptr<PreTokenizer> make_qwen_pre_tokenizer() {
  return std::make_unique<QwenPreTokenizer>();
}

}  // namespace lily
