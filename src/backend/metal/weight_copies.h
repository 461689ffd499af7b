// What is copied from the checkpoint to the device, and how on the way: codes into 4 or 8 bits, and scales
// and biases of large groups repeated for the smaller ones that the kernels know. Neither changes a weight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/metal/arena.h"

namespace lily::metal {

/// Bits that codes of `bits` bits lie in on the device.
[[nodiscard]] constexpr int device_bits(int bits) {
  return bits <= 4 ? 4 : 8;
}

class WeightCopies {
 public:
  void add_bytes(const std::byte* from, const View& to) { copies_.push_back({.from = from, .to = to}); }
  /// A stream of codes, lowest bits first, a multiple of 64 of them.
  void add_codes(const std::byte* from, int bits, const View& to) {
    copies_.push_back({.from = from, .to = to, .bits = bits});
  }
  /// Every bf16 number `times` times.
  void add_repeated(const std::byte* from, int times, const View& to) {
    copies_.push_back({.from = from, .to = to, .times = times});
  }
  /// Does all of it, with several threads. The views must have memory by now.
  void run() const;

 private:
  struct Copy {
    const std::byte* from;
    View to;
    int bits = 8;
    int times = 1;
  };
  /// Bytes [begin, begin + size) of where it goes.
  struct Piece {
    const Copy* copy;
    std::int64_t begin;
    std::int64_t size;
  };
  static void copy_piece(const Piece& piece);

  std::vector<Copy> copies_;
};

}  // namespace lily::metal
