#include "text/regex_grammar.h"

#include <bitset>
#include <charconv>
#include <string>
#include <vector>

#include "text/utf8.h"

namespace lily {
namespace {

using Fragment = Grammar::Fragment;

constexpr std::uint32_t kMostRepeats = 1000;
constexpr int kDeepest = 64;  // groups within groups

// Characters: any of ASCII, and either all others or some of them.
struct CharSet {
  std::bitset<128> ascii;
  bool others = false;
  std::vector<std::string> listed;  // some of the others, in UTF-8
};

CharSet single(char32_t c) {
  CharSet set;
  if (c < 128) {
    set.ascii.set(c);
  } else {
    utf8::append(c, set.listed.emplace_back());
  }
  return set;
}

CharSet range(unsigned char first, unsigned char last) {
  CharSet set;
  for (unsigned c = first; c <= last; ++c) set.ascii.set(c);
  return set;
}

void unite(CharSet& set, const CharSet& other) {
  set.ascii |= other.ascii;
  set.others = set.others || other.others;
  set.listed.insert(set.listed.end(), other.listed.begin(), other.listed.end());
}

CharSet invert(CharSet set) {
  set.ascii.flip();
  set.others = !set.others;
  return set;
}

CharSet class_of(char letter) {
  CharSet set;
  switch (letter | 0x20) {
    case 'd':
      set = range('0', '9');
      break;
    case 'w':
      set = range('0', '9');
      unite(set, range('a', 'z'));
      unite(set, range('A', 'Z'));
      unite(set, single('_'));
      break;
    default:
      set = range('\t', '\r');
      unite(set, single(' '));
  }
  return letter < 'a' ? invert(set) : set;
}

// Recursive descent over the pattern. The first error ends it.
class RegexCompiler {
 public:
  RegexCompiler(std::string_view pattern, StringSpelling spelling, Grammar& grammar)
      : rest_(pattern), spelling_(spelling), grammar_(grammar) {}

  Result<Fragment> compile() {
    std::vector<Fragment> branches;
    do {
      LILY_TRY(const Fragment branch, anchored_branch());
      branches.push_back(branch);
    } while (take('|'));
    if (!rest_.empty()) return problem("unbalanced ')'");
    return grammar_.choice(branches);
  }

 private:
  static Error problem(std::string_view what) { return fail(ErrorCode::kInvalidArgument, "{}", what); }

  bool take(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  Result<Fragment> anchored_branch() {
    const bool from_start = take('^');
    LILY_TRY(Fragment body, branch(0));
    const bool to_end = take('$');
    if (!rest_.empty() && rest_.front() != '|' && rest_.front() != ')') {
      return problem("'$' is supported at the end of the pattern alone");
    }
    std::vector<Fragment> parts;
    if (!from_start) parts.push_back(anything());
    parts.push_back(body);
    if (!to_end) parts.push_back(anything());
    return grammar_.sequence(parts);
  }

  Fragment anything() {
    CharSet all;
    return grammar_.repeat(grammar_.rule(spell(invert(all))), 0, Grammar::kUnbounded);
  }

  Result<Fragment> branch(int depth) {
    std::vector<Fragment> parts;
    while (!rest_.empty() && rest_.front() != '|' && rest_.front() != ')' && rest_.front() != '$') {
      LILY_TRY(const Fragment atom, this->atom(depth));
      LILY_TRY(const Fragment repeated, quantified(atom));
      parts.push_back(repeated);
    }
    return grammar_.sequence(parts);
  }

  Result<Fragment> group(int depth) {
    if (depth > kDeepest) return problem("groups are nested too deep");
    if (take('?')) {
      if (!take(':')) return problem("of (?...) only (?:...) is supported");
    }
    std::vector<Fragment> branches;
    do {
      LILY_TRY(const Fragment part, branch(depth + 1));
      branches.push_back(part);
    } while (take('|'));
    if (!rest_.empty() && rest_.front() == '$')
      return problem("'$' is supported at the end of the pattern alone");
    if (!take(')')) return problem("missing ')'");
    return grammar_.choice(branches);
  }

  Result<Fragment> atom(int depth) {
    if (take('(')) return group(depth);
    if (take('[')) {
      LILY_TRY(const CharSet set, char_class());
      return spell(set);
    }
    if (take('.')) return spell(invert(single('\n')));
    if (rest_.front() == '^') return problem("'^' is supported at the start of the pattern alone");
    if (std::string_view("*+?").find(rest_.front()) != std::string_view::npos)
      return problem("nothing to repeat");
    if (take('\\')) {
      LILY_TRY(const CharSet set, escape());
      return spell(set);
    }
    return spell(single(next_char()));
  }

  char32_t next_char() {
    const utf8::Sequence sequence = utf8::decode(rest_);
    rest_.remove_prefix(sequence.length);
    return sequence.code_point;
  }

  Result<std::uint32_t> hex(std::size_t digits) {
    std::uint32_t value = 0;
    if (rest_.size() < digits) return problem("expected hexadecimal digits after the escape");
    const auto parsed = std::from_chars(rest_.data(), rest_.data() + digits, value, 16);
    if (parsed.ptr != rest_.data() + digits) return problem("expected hexadecimal digits after the escape");
    rest_.remove_prefix(digits);
    return value;
  }

  Result<CharSet> escape() {
    if (rest_.empty()) return problem("a backslash at the end");
    const char c = rest_.front();
    if (std::string_view("dDwWsS").find(c) != std::string_view::npos) {
      rest_.remove_prefix(1);
      return class_of(c);
    }
    constexpr std::string_view kNames = "nrtfv0";
    constexpr std::string_view kValues("\n\r\t\f\v\0", 6);
    if (const std::size_t named = kNames.find(c); named != std::string_view::npos) {
      rest_.remove_prefix(1);
      return single(static_cast<unsigned char>(kValues[named]));
    }
    if (c == 'x' || c == 'u') {
      rest_.remove_prefix(1);
      if (c == 'u') return code_unit();
      LILY_TRY(const std::uint32_t code, hex(2));
      return single(code);
    }
    const bool letter = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    if (letter) return fail(ErrorCode::kInvalidArgument, "\\{} is not supported", c);
    return single(next_char());
  }

  // Behind \u: characters beyond 0xFFFF are written as a surrogate pair.
  Result<CharSet> code_unit() {
    LILY_TRY(const std::uint32_t code, hex(4));
    if (code < 0xD800 || code > 0xDFFF) return single(code);
    if (code < 0xDC00 && rest_.starts_with("\\u")) {
      rest_.remove_prefix(2);
      LILY_TRY(const std::uint32_t low, hex(4));
      if (low >= 0xDC00 && low <= 0xDFFF) return single(0x10000 + ((code - 0xD800) << 10U) + (low - 0xDC00));
    }
    return problem("half a surrogate pair is no character");
  }

  Result<CharSet> char_class() {
    const bool inverted = take('^');
    CharSet set;
    for (bool first = true; first || rest_.empty() || rest_.front() != ']'; first = false) {
      if (rest_.empty()) return problem("missing ']'");
      if (first && rest_.front() == ']') break;
      LILY_TRY(const CharSet low, class_member());
      const bool is_range = rest_.size() > 1 && rest_.front() == '-' && rest_[1] != ']';
      if (!is_range) {
        unite(set, low);
        continue;
      }
      rest_.remove_prefix(1);
      LILY_TRY(const CharSet high, class_member());
      if (low.ascii.count() != 1 || !low.listed.empty())
        return problem("a range has to begin with an ASCII character");
      const auto begin = static_cast<unsigned char>(low.ascii._Find_first());
      if (high.ascii.count() == 1 && high.listed.empty()) {
        unite(set, range(begin, static_cast<unsigned char>(high.ascii._Find_first())));
      } else if (high.listed.size() == 1) {  // up to somewhere beyond ASCII: all of that
        unite(set, range(begin, 127));
        set.others = true;
      } else {
        return problem("a range has to end with a character");
      }
    }
    rest_.remove_prefix(1);
    if (inverted && !set.listed.empty())
      return problem("[^...] with characters beyond ASCII is not supported");
    return inverted ? invert(set) : set;
  }

  Result<CharSet> class_member() {
    if (take('\\')) {
      if (take('b')) return single('\b');
      return escape();
    }
    return single(next_char());
  }

  Result<Fragment> quantified(Fragment atom) {
    std::uint32_t least = 1;
    std::uint32_t most = 1;
    if (take('*')) {
      least = 0;
      most = Grammar::kUnbounded;
    } else if (take('+')) {
      most = Grammar::kUnbounded;
    } else if (take('?')) {
      least = 0;
    } else if (!rest_.empty() && rest_.front() == '{') {
      LILY_TRY_VOID(braces(least, most));
    } else {
      return atom;
    }
    take('?');  // lazy: the same strings
    if (!rest_.empty() && std::string_view("*+").find(rest_.front()) != std::string_view::npos) {
      return problem("possessive and doubled quantifiers are not supported");
    }
    return grammar_.repeat(grammar_.rule(atom), least, most);
  }

  // {n}, {n,} or {n,m}
  Result<void> braces(std::uint32_t& least, std::uint32_t& most) {
    rest_.remove_prefix(1);
    const std::size_t close = rest_.find('}');
    const std::string_view inside = rest_.substr(0, close);
    const std::size_t comma = inside.find(',');
    const auto number = [](std::string_view text, std::uint32_t& out) {
      const auto parsed = std::from_chars(text.data(), text.data() + text.size(), out);
      return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
    };
    if (close == std::string_view::npos || !number(inside.substr(0, comma), least)) {
      return problem("expected {n}, {n,} or {n,m}");
    }
    most = least;
    if (comma != std::string_view::npos) {
      const std::string_view upper = inside.substr(comma + 1);
      most = Grammar::kUnbounded;
      if (!upper.empty() && !number(upper, most)) return problem("expected {n}, {n,} or {n,m}");
    }
    if (least > most || least > kMostRepeats || (most > kMostRepeats && most != Grammar::kUnbounded)) {
      return fail(ErrorCode::kInvalidArgument, "expected repetitions in order and up to {}", kMostRepeats);
    }
    rest_.remove_prefix(close + 1);
    return {};
  }

  // In JSON, what has to be escaped is, in the shortest way.
  Fragment spell(const CharSet& set) {
    static constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t";
    static constexpr std::string_view kLetters = "\"\\bfnrt";
    std::vector<std::pair<std::uint8_t, std::uint8_t>> plain;
    std::vector<Fragment> parts;
    for (std::uint8_t c = 0; c < 128; ++c) {
      if (!set.ascii[c]) continue;
      const bool json = spelling_ == StringSpelling::kJson;
      if (!json || (c >= 0x20 && c != '"' && c != '\\')) {
        plain.emplace_back(c, c);
      } else if (const auto at = kEscaped.find(static_cast<char>(c)); at != std::string_view::npos) {
        parts.push_back(grammar_.literal(std::string("\\") + kLetters[at]));
      }
    }
    if (!plain.empty()) parts.push_back(grammar_.any_of(plain));
    if (set.others) parts.push_back(grammar_.beyond_ascii());
    for (const std::string& other : set.listed) parts.push_back(grammar_.literal(other));
    return grammar_.choice(parts);
  }

  std::string_view rest_;
  StringSpelling spelling_;
  Grammar& grammar_;
};

}  // namespace

Result<Fragment> compile_regex(std::string_view pattern, StringSpelling spelling, Grammar& grammar) {
  return RegexCompiler(pattern, spelling, grammar).compile();
}

}  // namespace lily
