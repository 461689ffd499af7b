// lily synth: a checkpoint of random weights.
#include "checkpoint/synth.h"

#include <optional>

#include "base/progress.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/interrupt.h"

namespace lily {

Result<void> run_synth(const Options& options) {
  if (options.out.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "synth: expected the directory to write (lily synth OUT), found none");
  }
  const SynthOptions synth{.out = options.out,
                           .preset = options.preset,
                           .quantization = {.bits = static_cast<int>(options.bits),
                                            .group_size = static_cast<int>(options.group_size)},
                           .seed = options.seed.value_or(0),
                           .threads = static_cast<int>(options.threads),
                           .tokenizer_from = options.tokenizer_from};
  const Interrupt interrupt;
  std::optional<Progress> progress;
  std::int64_t bytes = 0;
  const auto done = synthesize(synth, [&](std::int64_t written, std::int64_t total) {
    if (!progress) progress.emplace("synth", ProgressUnit::kBytes, total);
    progress->update(written);
    bytes = total;
    return !interrupt.pending();
  });
  progress.reset();
  if (!done.ok()) return done.error();
  return console::print(
      fmt::format("{}: {}, {}\n", options.out, options.preset, format_bytes(static_cast<double>(bytes))));
}

}  // namespace lily
