// lily tokenize: text to ids.
#include <nlohmann/json.hpp>

#include "base/npy.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "cli/open.h"
#include "cli/prompt.h"
#include "cli/token_input.h"

namespace lily {
namespace {

// A piece may be a part of a character; U+FFFD stands for it, as everywhere else.
std::string to_json(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  auto pieces = nlohmann::ordered_json::array();
  for (const TokenId id : ids) pieces.push_back(tokenizer.decode(std::span(&id, 1)));
  const nlohmann::ordered_json json = {{"count", ids.size()}, {"ids", ids}, {"pieces", pieces}};
  return json_line(json);
}

}  // namespace

Result<void> run_tokenize(const Options& options) {
  LILY_TRY(const Tokenizer tokenizer, open_tokenizer(options.model));
  LILY_TRY(const std::string text, prompt_text(options.prompt.value_or("-")));
  const auto matching = options.literal ? AddedTokenMatching::kLiteral : AddedTokenMatching::kMatch;
  const std::vector<TokenId> ids = tokenizer.encode(text, matching);
  if (!options.out.empty()) return write_npy_ids(options.out, ids);
  return console::print(options.json ? to_json(tokenizer, ids) : join_ids(ids) + "\n");
}

}  // namespace lily
