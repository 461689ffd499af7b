// lily logits: the logits of every position of a prompt, as a matrix on disk.
#include "base/npy.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/open.h"
#include "cli/token_input.h"
#include "engine/evaluate.h"

namespace lily {

Result<void> run_logits(const Options& options) {
  if (options.out.empty()) {
    return fail(ErrorCode::kInvalidArgument, "logits: expected --out F.npy, found none");
  }
  LILY_TRY(const std::vector<TokenId> ids, required_ids(options));
  const auto count = static_cast<std::int64_t>(ids.size());
  ModelOptions opening = model_options(options);
  opening.max_seq = std::max<std::int64_t>(count, 1);
  LILY_TRY(const auto model, open_model(opening));
  LILY_TRY_VOID(check_ids(ids, model->shapes().vocab));

  LILY_TRY(NpyMatrixWriter file, NpyMatrixWriter::create(options.out, count, model->shapes().vocab));
  LILY_TRY(LogitsStream stream, LogitsStream::create(*model, options.chunk));
  const Interrupt interrupt;
  Progress progress("logits", ProgressUnit::kTokens, count);
  for (std::int64_t done = 0; done < count; done += stream.rows()) {
    LILY_TRY(const auto logits, stream.step(std::span(ids).subspan(static_cast<std::size_t>(done))));
    LILY_TRY_VOID(file.append(logits));
    progress.update(done + stream.rows());
    if (interrupt.pending()) return interrupted();
  }
  return file.commit();
}

}  // namespace lily
