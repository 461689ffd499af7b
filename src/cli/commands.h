// The subcommands, a file each. Each prints to stdout, and returns what went wrong in one line; kCancelled
// when the user interrupted it.
#pragma once

#include "base/result.h"
#include "cli/options.h"

namespace lily {

Result<void> run_ablate(const Options& options);
Result<void> run_bench(const Options& options);
Result<void> run_chat(const Options& options);
Result<void> run_completion(const Options& options);
Result<void> run_detokenize(const Options& options);
Result<void> run_devices(const Options& options);
Result<void> run_eval(const Options& options);
Result<void> run_inspect(const Options& options);
Result<void> run_logits(const Options& options);
Result<void> run_pull(const Options& options);
Result<void> run_quantize(const Options& options);
Result<void> run_run(const Options& options);
Result<void> run_selftest(const Options& options);
Result<void> run_serve(const Options& options);
Result<void> run_synth(const Options& options);
Result<void> run_tokenize(const Options& options);

}  // namespace lily
