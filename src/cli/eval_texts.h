// What `lily eval` scores: one text, or many that have nothing to do with each other.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "cli/options.h"

namespace lily {

struct EvalTexts {
  std::vector<std::vector<TokenId>> ids;
  std::vector<std::string> prompts = {};  ///< of --prompts, what `ids` was made from; else empty

  [[nodiscard]] std::int64_t tokens() const;
  [[nodiscard]] std::int64_t longest() const;
};

/// --text, --ids-file or --prompts, whichever was given; exactly one has to be. Every text has at least 2
/// tokens.
Result<EvalTexts> read_eval_texts(const Options& options);

}  // namespace lily
