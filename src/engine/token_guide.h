// What the engine asks before it samples: which tokens may come next.
#pragma once

#include <cstdint>
#include <span>

#include "base/types.h"

namespace lily {

/// One a generation, used by the engine's thread alone: allowed() before each token, accept() after it.
class TokenGuide {
 public:
  TokenGuide() = default;
  virtual ~TokenGuide() = default;
  TokenGuide(const TokenGuide&) = delete;
  TokenGuide& operator=(const TokenGuide&) = delete;

  /// Bit id % 64 of word id / 64 is set for ids that may come next, stop ids among them; at least one is. Ids
  /// beyond the last word may not. Empty: any id may. Valid until the next call.
  virtual std::span<const std::uint64_t> allowed() = 0;
  /// The token that was sampled; not called for the stop id that ended the answer.
  virtual void accept(TokenId id) = 0;
};

}  // namespace lily
