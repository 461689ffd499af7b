// Token ids from the command line: lists, files, standard input.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "cli/options.h"

namespace lily {

/// "1,2,3", also separated by blanks or line breaks. Errors name the item.
Result<std::vector<TokenId>> parse_ids(std::string_view text);

/// --ids or --ids-file, whichever was given; exactly one has to be.
Result<std::vector<TokenId>> required_ids(const Options& options);

/// kInvalidArgument, naming the position, for the first id that is not in 0..vocab-1, and for an empty list.
Result<void> check_ids(const std::vector<TokenId>& ids, std::int64_t vocab);

/// "1,2,3"
[[nodiscard]] std::string join_ids(const std::vector<TokenId>& ids);

}  // namespace lily
