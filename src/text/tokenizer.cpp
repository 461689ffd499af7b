#include "text/tokenizer.h"

#include <algorithm>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_file.h"
#include "text/utf8.h"

namespace lily {

struct Tokenizer::Impl {
  Impl(Bpe merges, AddedTokens added_tokens) : bpe(std::move(merges)), added(std::move(added_tokens)) {}

  Bpe bpe;
  AddedTokens added;
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  bool normalize = false;
  std::vector<std::string> tokens;  // bytes of every id, added tokens included
  std::vector<bool> special;        // [tokens.size()]

  // What one encode() call needs besides its result.
  struct Buffers {
    std::string normalized;
    std::vector<AddedTokens::Segment> outer;
    std::vector<AddedTokens::Segment> inner;
    std::vector<std::string_view> pieces;
    Bpe::Scratch scratch;
  };

  // Ordinary text, already normalised.
  void encode_plain(std::string_view text, Buffers& buffers, std::vector<TokenId>& out) const {
    buffers.pieces.clear();
    pre_tokenizer->split(text, buffers.pieces);
    for (const std::string_view piece : buffers.pieces) bpe.encode(piece, buffers.scratch, out);
  }

  // Text between the added tokens of the raw text: those that match after normalisation come now.
  void encode_between(std::string_view text, bool match, Buffers& buffers, std::vector<TokenId>& out) const {
    if (normalize) text = nfc(text, buffers.normalized);
    if (!match) return encode_plain(text, buffers, out);
    buffers.inner.clear();
    added.split(text, true, buffers.inner);
    for (const AddedTokens::Segment& segment : buffers.inner) {
      if (segment.id) {
        out.push_back(*segment.id);
      } else {
        encode_plain(segment.text, buffers, out);
      }
    }
  }

  // Places the added tokens among those of the vocabulary. A token may be in both, with one id.
  Result<void> add_tokens() {
    for (const AddedToken& token : added.all()) {
      const auto index = static_cast<std::size_t>(token.id);
      if (index >= tokens.size()) tokens.resize(index + 1);
      if (!tokens[index].empty() && tokens[index] != token.content) {
        return fail(ErrorCode::kCorrupt, "added_tokens: {} has the id {} of {}", utf8::quoted(token.content),
                    token.id, utf8::quoted(tokens[index]));
      }
      tokens[index] = token.content;
    }
    special.assign(tokens.size(), false);
    for (const AddedToken& token : added.all()) special[static_cast<std::size_t>(token.id)] = token.special;
    return {};
  }
};

namespace {

// Contents must be distinct, and those matched in normalised text are normalised like it.
Result<AddedTokens> make_added_tokens(const TokenizerFile& file) {
  std::vector<AddedToken> tokens = file.added_tokens;
  std::string storage;
  for (AddedToken& token : tokens) {
    if (!utf8::is_valid(token.content))
      return fail(ErrorCode::kCorrupt, "added_tokens: id {} is not UTF-8", token.id);
    if (token.normalized && file.nfc) token.content = std::string(nfc(token.content, storage));
  }
  std::vector<std::string_view> contents;
  for (const AddedToken& token : tokens) contents.push_back(token.content);
  std::sort(contents.begin(), contents.end());
  const auto twice = std::adjacent_find(contents.begin(), contents.end());
  if (twice != contents.end())
    return fail(ErrorCode::kCorrupt, "added_tokens: {} is listed twice", utf8::quoted(*twice));
  return AddedTokens(std::move(tokens));
}

}  // namespace

Result<Tokenizer> Tokenizer::parse(std::string_view tokenizer_json) {
  TokenizerFile file;
  LILY_TRY_VOID(read_tokenizer_file(tokenizer_json, file));
  LILY_TRY(Bpe bpe, Bpe::build(file));
  LILY_TRY(AddedTokens added, make_added_tokens(file));
  auto impl = std::make_unique<Impl>(std::move(bpe), std::move(added));
  LILY_TRY(impl->pre_tokenizer, PreTokenizer::create(file.split_pattern));
  impl->normalize = file.nfc;
  impl->tokens = impl->bpe.take_tokens();
  LILY_TRY_VOID(impl->add_tokens());
  return Tokenizer(std::move(impl));
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<TokenId> Tokenizer::encode(std::string_view text, AddedTokenMatching matching) const {
  std::string sanitized;
  if (!utf8::is_valid(text)) {
    sanitized = utf8::sanitize(text);
    text = sanitized;
  }
  const bool match = matching == AddedTokenMatching::kMatch;
  Impl::Buffers buffers;
  std::vector<TokenId> ids;
  if (match) {
    impl_->added.split(text, false, buffers.outer);
  } else if (!text.empty()) {
    buffers.outer.push_back({text, std::nullopt});
  }
  for (const AddedTokens::Segment& segment : buffers.outer) {
    if (segment.id) {
      ids.push_back(*segment.id);
    } else {
      impl_->encode_between(segment.text, match, buffers, ids);
    }
  }
  return ids;
}

std::string_view Tokenizer::bytes(TokenId id) const {
  return has_token(id) ? std::string_view(impl_->tokens[static_cast<std::size_t>(id)]) : std::string_view();
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string bytes_of_all;
  for (const TokenId id : ids) {
    if (!skip_special || !is_special(id)) bytes_of_all += bytes(id);
  }
  return utf8::sanitize(bytes_of_all);
}

std::optional<TokenId> Tokenizer::added_token(std::string_view content) const {
  const AddedToken* token = impl_->added.find(content);
  return token == nullptr ? std::nullopt : std::optional(token->id);
}

bool Tokenizer::is_special(TokenId id) const {
  return has_token(id) && impl_->special[static_cast<std::size_t>(id)];
}

bool Tokenizer::has_token(TokenId id) const {
  return id >= 0 && id < end() && !impl_->tokens[static_cast<std::size_t>(id)].empty();
}

TokenId Tokenizer::end() const {
  return static_cast<TokenId>(impl_->tokens.size());
}

}  // namespace lily
