// How fast this machine reads memory: the bound of decoding, which every weight byte crosses once a token.
#pragma once

#include <cstddef>
#include <span>

#include "base/threads.h"

namespace lily::cpu {

/// Bytes a second of one streaming pass of all the pool's threads over `bytes`: best of two passes of a
/// stream a thread, of which the first also maps the pages, and two of several, which some machines read
/// faster. For a bound that a cache cannot flatter, give it several times the last-level cache.
[[nodiscard]] double measure_read_bandwidth(std::span<const std::byte> bytes, ThreadPool& pool);

}  // namespace lily::cpu
