#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <optional>

#include "text/utf8.h"

namespace lily {
namespace {

constexpr TokenId kMerged = -1;

// The alphabet in which tokenizer.json spells bytes: printable Latin-1 stands for itself, the other 68 bytes,
// in order, for U+0100 and up.
struct ByteAlphabet {
  std::array<int, 0x100 + 68> byte_of{};  // code point -> byte, -1 for none

  ByteAlphabet() {
    byte_of.fill(-1);
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
      byte_of[static_cast<std::size_t>(printable ? byte : next++)] = byte;
    }
  }

  // Text outside the alphabet (an added token that is also listed in the vocabulary) stands for itself.
  [[nodiscard]] std::string decode(std::string_view spelling) const {
    std::string bytes;
    for (std::string_view rest = spelling; !rest.empty();) {
      const utf8::Sequence sequence = utf8::decode(rest);
      if (sequence.code_point >= byte_of.size() || byte_of[sequence.code_point] < 0)
        return std::string(spelling);
      bytes += static_cast<char>(byte_of[sequence.code_point]);
      rest.remove_prefix(sequence.length);
    }
    return bytes;
  }
};

// The smallest first: the lowest rank, and the leftmost among equals.
std::uint64_t candidate(std::uint32_t rank, std::int32_t left) {
  return (std::uint64_t{rank} << 32) | static_cast<std::uint32_t>(left);
}

std::uint64_t pair_key(TokenId left, TokenId right) {
  return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32) | static_cast<std::uint32_t>(right);
}

// Spelling -> id. Open addressing with the hash beside the id: building the merges asks it 750,000 times, and
// std::unordered_map made that half of the load time.
class Ids {
 public:
  explicit Ids(std::size_t tokens) : slots_(std::bit_ceil(2 * tokens + 1)), spellings_(tokens) {}

  // False if the spelling is there already.
  bool insert(std::string_view spelling, TokenId id) {
    const std::size_t hash = std::hash<std::string_view>{}(spelling);
    Slot& slot = slots_[slot_of(spelling, hash)];
    if (slot.entry >= 0) return false;
    spellings_[count_] = spelling;
    slot = {static_cast<std::uint32_t>(hash >> 32), static_cast<std::int32_t>(count_++), id};
    return true;
  }

  [[nodiscard]] std::optional<TokenId> find(std::string_view spelling) const {
    const Slot& slot = slots_[slot_of(spelling, std::hash<std::string_view>{}(spelling))];
    return slot.entry < 0 ? std::nullopt : std::optional(slot.id);
  }

 private:
  struct Slot {
    std::uint32_t check = 0;  // upper half of the hash
    std::int32_t entry = -1;  // index into spellings_, -1 for none
    TokenId id = 0;
  };

  // The slot of the spelling, or the empty one where it would go.
  [[nodiscard]] std::size_t slot_of(std::string_view spelling, std::size_t hash) const {
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
      const Slot& slot = slots_[i];
      if (slot.entry < 0) return i;
      if (slot.check == hash >> 32 && spellings_[static_cast<std::size_t>(slot.entry)] == spelling) return i;
    }
  }

  std::vector<Slot> slots_;  // power of two, at most half full
  std::vector<std::string_view> spellings_;
  std::size_t count_ = 0;
};

Result<TokenId> id_of(const Ids& ids, std::string_view token, std::size_t rank) {
  if (const std::optional<TokenId> id = ids.find(token)) return *id;
  return fail(ErrorCode::kCorrupt, "model.merges[{}]: token {} is not in the vocabulary", rank,
              utf8::quoted(token));
}

Result<MergeTable> build_merges(const TokenizerFile& file, const Ids& ids) {
  MergeTable table;
  table.reserve(file.merges.size());
  std::string joined;
  for (std::size_t rank = 0; rank < file.merges.size(); ++rank) {
    const auto& [left, right] = file.merges[rank];
    LILY_TRY(const TokenId left_id, id_of(ids, left, rank));
    LILY_TRY(const TokenId right_id, id_of(ids, right, rank));
    joined.assign(left).append(right);
    LILY_TRY(const TokenId id, id_of(ids, joined, rank));
    table.insert(left_id, right_id, {static_cast<std::uint32_t>(rank), id});
  }
  return table;
}

}  // namespace

void MergeTable::reserve(std::size_t merges) {
  slots_.assign(std::bit_ceil(2 * merges + 1), Slot{});
}

// The slot that holds `key`, or the empty one where it would go.
std::size_t MergeTable::slot_of(std::uint64_t key) const {
  const std::size_t mask = slots_.size() - 1;
  std::uint64_t hash = key * 0x9E3779B97F4A7C15U;
  hash ^= hash >> 32;
  std::size_t slot = hash & mask;
  while (slots_[slot].key != kEmpty && slots_[slot].key != key) slot = (slot + 1) & mask;
  return slot;
}

// A pair that is listed twice keeps its later rank, as in the reference.
void MergeTable::insert(TokenId left, TokenId right, Merge merge) {
  const std::uint64_t key = pair_key(left, right);
  slots_[slot_of(key)] = {key, merge};
}

const MergeTable::Merge* MergeTable::find(TokenId left, TokenId right) const {
  const std::uint64_t key = pair_key(left, right);
  const Slot& slot = slots_[slot_of(key)];
  return slot.key == key ? &slot.merge : nullptr;
}

Result<Bpe> Bpe::build(const TokenizerFile& file) {
  static const ByteAlphabet alphabet;
  Bpe bpe;
  Ids ids(file.vocab.size());
  for (const auto& [spelling, id] : file.vocab) {
    if (spelling.empty()) return fail(ErrorCode::kCorrupt, "model.vocab: the token of id {} is empty", id);
    if (!ids.insert(spelling, id)) {
      return fail(ErrorCode::kCorrupt, "model.vocab: token {} is listed twice", utf8::quoted(spelling));
    }
    const auto index = static_cast<std::size_t>(id);
    if (index >= bpe.tokens_.size()) bpe.tokens_.resize(std::max(index + 1, file.vocab.size()));
    if (!bpe.tokens_[index].empty())
      return fail(ErrorCode::kCorrupt, "model.vocab: id {} has two tokens", id);
    bpe.tokens_[index] = alphabet.decode(spelling);
  }
  while (!bpe.tokens_.empty() && bpe.tokens_.back().empty()) bpe.tokens_.pop_back();

  for (std::size_t code_point = 0; code_point < alphabet.byte_of.size(); ++code_point) {
    if (alphabet.byte_of[code_point] < 0) continue;
    std::string spelling;
    utf8::append(static_cast<char32_t>(code_point), spelling);
    const auto byte = static_cast<std::size_t>(alphabet.byte_of[code_point]);
    const std::optional<TokenId> id = ids.find(spelling);
    if (!id) return fail(ErrorCode::kCorrupt, "model.vocab: no token for byte 0x{:02x}", byte);
    bpe.byte_ids_[byte] = *id;
  }
  LILY_TRY(bpe.merges_, build_merges(file, ids));
  if (file.ignore_merges) {
    for (const auto& [spelling, id] : file.vocab) bpe.whole_.emplace(alphabet.decode(spelling), id);
  }
  return bpe;
}

// What the symbol at `left` and its right neighbour merge into, if they do.
const MergeTable::Merge* Bpe::merge_at(const Scratch& scratch, std::int32_t left) const {
  const Scratch::Symbol& symbol = scratch.symbols[static_cast<std::size_t>(left)];
  if (symbol.id == kMerged || symbol.next < 0) return nullptr;
  return merges_.find(symbol.id, scratch.symbols[static_cast<std::size_t>(symbol.next)].id);
}

void Bpe::push_candidate(Scratch& scratch, std::int32_t left) const {
  const MergeTable::Merge* merge = merge_at(scratch, left);
  if (merge == nullptr) return;
  scratch.heap.push_back(candidate(merge->rank, left));
  std::ranges::push_heap(scratch.heap, std::greater{});
}

// One symbol a byte, linked left and right, and the pairs of them that merge.
void Bpe::start(std::string_view piece, Scratch& scratch) const {
  LILY_CHECK(piece.size() < std::numeric_limits<std::int32_t>::max(), "a piece of {} bytes", piece.size());
  scratch.symbols.clear();
  scratch.heap.clear();
  const auto count = static_cast<std::int32_t>(piece.size());
  for (std::int32_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(piece[static_cast<std::size_t>(i)]);
    scratch.symbols.push_back({byte_ids_[byte], i - 1, i + 1 < count ? i + 1 : -1});
  }
  for (std::int32_t i = 0; i < count; ++i) {
    if (const auto* merge = merge_at(scratch, i)) scratch.heap.push_back(candidate(merge->rank, i));
  }
  std::ranges::make_heap(scratch.heap, std::greater{});
}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
  if (!whole_.empty()) {
    if (const auto found = whole_.find(std::string(piece)); found != whole_.end()) {
      out.push_back(found->second);
      return;
    }
  }
  start(piece, scratch);
  std::vector<Scratch::Symbol>& symbols = scratch.symbols;
  while (!scratch.heap.empty()) {
    std::ranges::pop_heap(scratch.heap, std::greater{});
    const std::uint64_t best = scratch.heap.back();
    scratch.heap.pop_back();
    const auto at = static_cast<std::int32_t>(best & 0xFFFFFFFFU);
    // A candidate is stale once either side has become another token.
    const MergeTable::Merge* merge = merge_at(scratch, at);
    if (merge == nullptr || merge->rank != best >> 32) continue;
    Scratch::Symbol& left = symbols[static_cast<std::size_t>(at)];
    Scratch::Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    left.id = merge->id;
    left.next = right.next;
    right.id = kMerged;
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = at;
    if (left.previous >= 0) push_candidate(scratch, left.previous);
    push_candidate(scratch, at);
  }
  for (std::int32_t i = symbols.empty() ? -1 : 0; i >= 0; i = symbols[static_cast<std::size_t>(i)].next) {
    out.push_back(symbols[static_cast<std::size_t>(i)].id);
  }
}

}  // namespace lily
