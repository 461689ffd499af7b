#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"
#include "text/utf8.h"

namespace lily {
namespace {

std::size_t leading_space(std::string_view text) {
  const UnicodeTable& table = UnicodeTable::instance();
  std::size_t length = 0;
  while (length < text.size()) {
    const utf8::Sequence sequence = utf8::decode(text.substr(length, 4));
    if ((table[sequence.code_point] & kSpace) == 0) break;
    length += sequence.length;
  }
  return length;
}

std::size_t trailing_space(std::string_view text) {
  const UnicodeTable& table = UnicodeTable::instance();
  std::size_t start = text.size();
  while (start > 0) {
    std::size_t begin = start - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U) --begin;
    if ((table[utf8::decode(text.substr(begin, 4)).code_point] & kSpace) == 0) break;
    start = begin;
  }
  return text.size() - start;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.content.size() > b.content.size(); });
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    by_first_[static_cast<unsigned char>(tokens_[i].content[0])].push_back(i);
  }
}

const AddedToken* AddedTokens::longest_at(std::string_view text, bool normalized) const {
  for (const std::size_t i : by_first_[static_cast<unsigned char>(text[0])]) {
    const AddedToken& token = tokens_[i];
    if (token.normalized == normalized && text.starts_with(token.content)) return &token;
  }
  return nullptr;
}

void AddedTokens::split(std::string_view text, bool normalized, std::vector<Segment>& out) const {
  std::size_t plain = 0;  // start of the ordinary text not yet appended
  for (std::size_t i = 0; i < text.size();) {
    const AddedToken* token = longest_at(text.substr(i), normalized);
    if (token == nullptr) {
      ++i;
      continue;
    }
    std::size_t begin = i;
    std::size_t end = i + token->content.size();
    if (token->lstrip) begin -= trailing_space(text.substr(plain, i - plain));
    if (token->rstrip) end += leading_space(text.substr(end));
    if (begin > plain) out.push_back({text.substr(plain, begin - plain), std::nullopt});
    out.push_back({text.substr(begin, end - begin), token->id});
    plain = i = end;
  }
  if (plain < text.size()) out.push_back({text.substr(plain), std::nullopt});
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = std::find_if(tokens_.begin(), tokens_.end(),
                                  [&](const AddedToken& token) { return token.content == content; });
  return found == tokens_.end() ? nullptr : &*found;
}

}  // namespace lily
