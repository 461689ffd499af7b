#include "backend/metal/weight_copies.h"

#include <algorithm>
#include <cstring>

#include "base/threads.h"

namespace lily::metal {
namespace {

// Of a target: codes of any width begin a byte at such a multiple, and so do repeated numbers.
constexpr std::int64_t kPiece = std::int64_t{16} << 20;

// Eight codes, `bits` bytes, to 4 or 8.
void widen_eight(const std::byte* from, int bits, std::byte* to) {
  std::uint64_t codes = 0;
  std::memcpy(&codes, from, static_cast<std::size_t>(bits));
  const int width = device_bits(bits);
  std::uint64_t wide = 0;
  for (int i = 0; i < 8; ++i) {
    const std::uint64_t code = (codes >> (i * bits)) & ((std::uint64_t{1} << bits) - 1);
    wide |= code << (i * width);
  }
  std::memcpy(to, &wide, static_cast<std::size_t>(width));
}

void repeat(const std::byte* from, std::int64_t first, std::int64_t count, int times, std::byte* to) {
  for (std::int64_t i = 0; i < count; ++i) std::memcpy(to + i * 2, from + (first + i) / times * 2, 2);
}

}  // namespace

void WeightCopies::copy_piece(const Piece& piece) {
  const Copy& c = *piece.copy;
  std::byte* to = c.to.as<std::byte>() + piece.begin;
  if (c.times > 1) return repeat(c.from, piece.begin / 2, piece.size / 2, c.times, to);
  const int width = device_bits(c.bits);
  if (c.bits == width) {
    std::memcpy(to, c.from + piece.begin, static_cast<std::size_t>(piece.size));
    return;
  }
  const std::byte* from = c.from + piece.begin / width * c.bits;
  for (std::int64_t at = 0; at < piece.size; at += width, from += c.bits) widen_eight(from, c.bits, to + at);
}

// From mapped files: several threads keep the disk busy and fault pages in side by side.
void WeightCopies::run() const {
  std::vector<Piece> pieces;
  for (const Copy& c : copies_) {
    for (std::int64_t at = 0; at < c.to.size; at += kPiece)
      pieces.push_back({.copy = &c, .begin = at, .size = std::min(kPiece, c.to.size - at)});
  }
  ThreadPool pool(available_cores());
  pool.parallel_for(static_cast<std::int64_t>(pieces.size()), 1,
                    [&](std::int64_t begin, std::int64_t end, int /*thread*/) {
                      for (std::int64_t i = begin; i < end; ++i)
                        copy_piece(pieces[static_cast<std::size_t>(i)]);
                    });
}

}  // namespace lily::metal
