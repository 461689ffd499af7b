// Where a prompt being read leaves checkpoints for the requests after it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/types.h"

namespace lily {

/// A long stretch of prompt leaves one checkpoint in every interval of this many tokens: what an edit in the
/// middle may cost. For the 35B a checkpoint is 63 MiB and the KV rows of such an interval are 40 MiB.
inline constexpr std::int64_t kCheckpointInterval = 2048;
/// No nearer to each other: the step that a checkpoint adds costs about as much as reading this many tokens
/// again.
inline constexpr std::int64_t kCheckpointGap = 128;

/// Positions in (from, prompt.size()) where reading `prompt` from `from` on stops to keep a checkpoint:
/// ascending multiples of kPrefillGrid, so that stopping there changes no bit of the result. They are,
/// rounded down to the grid:
///  - `shared`, where the prompt leaves what is cached already: others will leave there too;
///  - the end of the first message, which a client's sessions have in common;
///  - the start of the last message, the answer to come: the next turn may render it without its reasoning;
///  - the last message in every interval, or the interval's end.
/// Messages begin at `turn_start` (<|im_start|>); a model that has none has one message.
[[nodiscard]] std::vector<std::int64_t> checkpoint_plan(std::span<const TokenId> prompt,
                                                        std::optional<TokenId> turn_start, std::int64_t from,
                                                        std::int64_t shared);

}  // namespace lily
