#include "tokens.h"

#include <cctype>
#include <charconv>

namespace lily::msl {
namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

class Tokenizer {
 public:
  explicit Tokenizer(std::string_view text) : text_(text) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) step();
    return std::move(tokens_);
  }

 private:
  void step() {
    const char c = text_[at_];
    if (c == '\n') return newline();
    if (std::isspace(static_cast<unsigned char>(c)) != 0) return space();
    if (c == '#' && starts_line_) return marker();
    starts_line_ = false;
    if (c == '"' || c == '\'') return quoted(c);
    if (std::isdigit(static_cast<unsigned char>(c)) != 0 || (c == '.' && is_digit(at_ + 1))) return number();
    if (is_word(c)) return word();
    punctuation();
  }
  [[nodiscard]] bool is_digit(std::size_t i) const {
    return i < text_.size() && std::isdigit(static_cast<unsigned char>(text_[i])) != 0;
  }

  void add(Token::Kind kind, std::size_t end) {
    tokens_.push_back({.kind = kind, .text = text_.substr(at_, end - at_), .file = file_, .line = line_});
    at_ = end;
  }
  void newline() {
    add(Token::Kind::kNewline, at_ + 1);
    ++line_;
    starts_line_ = true;
  }
  void space() {
    std::size_t end = at_;
    while (end < text_.size() && text_[end] != '\n' &&
           std::isspace(static_cast<unsigned char>(text_[end])) != 0) {
      ++end;
    }
    add(Token::Kind::kSpace, end);
  }
  // # 12 "file" flags
  void marker() {
    const std::size_t end = std::min(text_.find('\n', at_), text_.size());
    const std::string_view line = text_.substr(at_, end - at_);
    const std::size_t digits = line.find_first_of("0123456789");
    const std::size_t open = line.find('"');
    const std::size_t close = line.rfind('"');
    const bool names_place = open != close && digits < open && !line.starts_with("#pragma");
    add(Token::Kind::kMarker, end);
    if (!names_place) return;
    std::from_chars(line.data() + digits, line.data() + open, line_);
    --line_;  // the newline that follows
    file_ = line.substr(open + 1, close - open - 1);
  }
  void quoted(char quote) {
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    add(Token::Kind::kString, std::min(end + 1, text_.size()));
  }
  void number() {
    std::size_t end = at_ + 1;
    while (end < text_.size()) {
      const bool sign = text_[end] == '+' || text_[end] == '-';
      const char before = static_cast<char>(std::tolower(static_cast<unsigned char>(text_[end - 1])));
      if (!is_word(text_[end]) && text_[end] != '.' && !(sign && (before == 'e' || before == 'p'))) break;
      ++end;
    }
    add(Token::Kind::kNumber, end);
  }
  void word() {
    std::size_t end = at_;
    while (end < text_.size() && is_word(text_[end])) ++end;
    add(Token::Kind::kWord, end);
  }
  void punctuation() {
    const std::string_view two = text_.substr(at_, 2);
    if (two == "[[" || two == "::" || two == "->") {
      if (two == "[[") open_.push_back(2);
      return add(Token::Kind::kPunctuation, at_ + 2);
    }
    if (two == "]]" && !open_.empty() && open_.back() == 2) {
      open_.pop_back();
      return add(Token::Kind::kPunctuation, at_ + 2);
    }
    if (text_[at_] == '[') open_.push_back(1);
    if (text_[at_] == ']' && !open_.empty()) open_.pop_back();
    add(Token::Kind::kPunctuation, at_ + 1);
  }

  std::string_view text_;
  std::string_view file_ = "?";
  std::size_t at_ = 0;
  int line_ = 1;
  bool starts_line_ = true;
  std::vector<int> open_;  ///< lengths of the brackets around here
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view text) {
  return Tokenizer(text).run();
}

}  // namespace lily::msl
