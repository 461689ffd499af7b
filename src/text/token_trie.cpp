#include "text/token_trie.h"

#include <algorithm>

#include "text/utf8.h"

namespace lily {

TokenTrie::TokenTrie(std::vector<Entry> entries) {
  std::ranges::sort(entries, {}, [](const Entry& e) { return std::pair(e.bytes, e.id); });
  std::vector<std::uint32_t> path;  // nodes from the root to the last token
  std::string_view last;
  const auto leave = [&](std::size_t depth) {
    for (; path.size() > depth; path.pop_back())
      nodes_[path.back()].next = static_cast<std::uint32_t>(nodes_.size());
  };
  for (const Entry& entry : entries) {
    const auto mismatch = std::ranges::mismatch(last, entry.bytes);
    const auto common = static_cast<std::size_t>(mismatch.in1 - last.begin());
    leave(common);
    const auto index = static_cast<std::uint32_t>(tokens_.size());
    for (std::size_t i = common; i < entry.bytes.size(); ++i) {
      path.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back(
          {static_cast<std::uint8_t>(entry.bytes[i]), static_cast<std::uint16_t>(i + 1), 0, index, index});
    }
    tokens_.push_back(entry.id);
    nodes_[path.back()].tokens_end = index + 1;
    depth_ = std::max(depth_, entry.bytes.size());
    last = entry.bytes;
  }
  leave(0);
}

TokenVocabulary::TokenVocabulary(const Tokenizer& tokenizer)
    : words_((static_cast<std::size_t>(tokenizer.end()) + 63) / 64) {
  const auto think = tokenizer.added_token("<think>");
  const auto end_think = tokenizer.added_token("</think>");
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < tokenizer.end(); ++id) {
    if (!tokenizer.has_token(id) || tokenizer.is_special(id) || id == think || id == end_think) continue;
    bytes_.emplace_back(tokenizer.bytes(id));
    ids.push_back(id);
  }
  for (std::size_t i = 0; i < ids.size(); ++i) entries_.push_back({bytes_[i], ids[i]});
  all_ = std::make_unique<TokenTrie>(entries_);
}

const TokenVocabulary::Split& TokenVocabulary::split(const ByteSet& bytes) const {
  const std::lock_guard lock(mutex_);
  auto& kept = splits_[bytes.to_string()];
  if (kept == nullptr) {
    TokenMask inside(words_);
    std::vector<TokenTrie::Entry> others;
    for (const TokenTrie::Entry& entry : entries_) {
      const bool all =
          std::ranges::all_of(entry.bytes, [&](char c) { return bytes[static_cast<std::uint8_t>(c)]; });
      if (all && utf8::is_valid(entry.bytes)) {
        set_bit(inside, entry.id);
      } else {
        others.push_back(entry);
      }
    }
    kept = std::make_unique<Split>(Split{std::move(inside), TokenTrie(std::move(others))});
  }
  return *kept;
}

}  // namespace lily
