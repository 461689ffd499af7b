// lily detokenize: ids to text.
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/open.h"
#include "cli/prompt.h"
#include "cli/token_input.h"

namespace lily {
namespace {

Result<std::vector<TokenId>> input_ids(const Options& options) {
  if (!options.ids.empty() || !options.ids_file.empty()) return required_ids(options);
  LILY_TRY(const std::string text, console::read_stdin());
  auto ids = parse_ids(text);
  if (!ids.ok()) return std::move(ids).error().in("stdin");
  return ids;
}

}  // namespace

Result<void> run_detokenize(const Options& options) {
  LILY_TRY(const Tokenizer tokenizer, open_tokenizer(options.model));
  LILY_TRY(const std::vector<TokenId> ids, input_ids(options));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!tokenizer.has_token(ids[i])) {
      return fail(ErrorCode::kInvalidArgument, "token id {} at item {}: the tokenizer has no such token",
                  ids[i], i + 1);
    }
  }
  // Nothing is added in a pipe, so that tokenize | detokenize gives back what went in.
  LILY_TRY_VOID(console::print(tokenizer.decode(ids)));
  return console::stdout_is_terminal() ? console::print("\n") : Result<void>{};
}

}  // namespace lily
