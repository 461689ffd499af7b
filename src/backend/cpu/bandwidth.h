// How fast this machine reads memory: the bound of decoding, which every weight byte crosses once a token.
#pragma once

#include <cstddef>
#include <span>

#include "base/threads.h"

namespace lily::cpu {

/// Bytes a second of one streaming pass of all the pool's threads over `bytes` (best of three passes; the
/// first one also maps the pages). For a bound that a cache cannot flatter, give it several times the
/// last-level cache.
[[nodiscard]] double measure_read_bandwidth(std::span<const std::byte> bytes, ThreadPool& pool);

}  // namespace lily::cpu
