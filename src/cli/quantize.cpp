// lily quantize: an original checkpoint to the published MLX layout.
#include "checkpoint/quantize.h"

#include <optional>

#include "base/progress.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/interrupt.h"

namespace lily {

Result<void> run_quantize(const Options& options) {
  if (options.source.empty() || options.out.empty()) {
    return fail(
        ErrorCode::kInvalidArgument,
        "quantize: expected the original's directory and the one to write (lily quantize HF_DIR OUT)");
  }
  QuantizeOptions quantization{.source = options.source,
                               .out = options.out,
                               .quantization = {.bits = static_cast<int>(options.bits),
                                                .group_size = static_cast<int>(options.group_size)},
                               .rules = {},
                               .threads = static_cast<int>(options.threads)};
  LILY_TRY(quantization.rounding, parse_quantizer_rounding(options.rounding));
  LILY_TRY(quantization.rules, parse_quantize_rules(options.rules, quantization.quantization));
  const Interrupt interrupt;
  std::optional<Progress> progress;
  std::int64_t bytes = 0;
  const auto done = quantize(quantization, [&](std::int64_t written, std::int64_t total) {
    if (!progress) progress.emplace("quantize", ProgressUnit::kBytes, total);
    progress->update(written);
    bytes = total;
    return !interrupt.pending();
  });
  progress.reset();
  if (!done.ok()) return done.error();
  return console::print(fmt::format("{}: {} bits in groups of {}, {}\n", options.out, options.bits,
                                    options.group_size, format_bytes(static_cast<double>(bytes))));
}

}  // namespace lily
