// lily ablate: what each optimisation is worth: everything on, then each one off in turn.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/interrupt.h"
#include "cli/json_text.h"
#include "cli/open.h"
#include "cli/version.h"
#include "engine/benchmark.h"

namespace lily {
namespace {

constexpr std::int64_t kDefaultContext = 512;

// A way to run: an ablation of the backend's, or of the engine's by `chunk`.
struct Variant {
  Ablation ablation;
  std::int64_t chunk = 0;  // prompt rows of a step; 0: as asked for
};

struct Measured {
  Variant variant;
  std::vector<BenchmarkRow> rows = {};
};

struct AblationReport {
  std::string model = {};
  std::string backend = {};
  Measured first = {};              // everything on
  std::vector<Measured> each = {};  // without one
  Measured last = {};               // everything on again
};

// What every backend's prompts profit from: many rows share one reading of the weights.
std::vector<Variant> engine_variants() {
  return {{{"prompt-rows", fmt::format("{} prompt tokens a step", kPrefillGrid)}, kPrefillGrid},
          {{"prefill", "a prompt read token by token, as decoding does"}, 1}};
}

class Ablating {
 public:
  Ablating(const Options& options, BenchmarkOptions benchmark)
      : options_(options), benchmark_(std::move(benchmark)) {}

  Result<AblationReport> run() {
    AblationReport report;
    std::vector<Variant> variants;
    LILY_TRY(report.first, measure({}, [&](LoadedModel& model) {
               report.model = model.name();
               report.backend = model.backend().description();
               for (Ablation& ablation : model.backend().ablations())
                 variants.push_back({std::move(ablation)});
             }));
    for (Variant& variant : engine_variants()) variants.push_back(std::move(variant));
    LILY_TRY_VOID(keep_wanted(variants));
    for (const Variant& variant : variants) {
      LILY_TRY(Measured measured, measure(variant, {}));
      report.each.push_back(std::move(measured));
    }
    LILY_TRY(report.last, measure({}, {}));
    return report;
  }

 private:
  /// Of `variants` those that were asked for.
  Result<void> keep_wanted(std::vector<Variant>& variants) const {
    if (options_.without.empty()) return {};
    std::vector<Variant> wanted;
    for (const std::string& name : split_list(options_.without)) {
      const auto found =
          std::ranges::find_if(variants, [&](const Variant& v) { return v.ablation.name == name; });
      if (found == variants.end()) {
        std::vector<std::string> names;
        names.reserve(variants.size());
        for (const Variant& variant : variants) names.push_back(variant.ablation.name);
        return fail(ErrorCode::kInvalidArgument, "--without {}: expected of {}", name,
                    fmt::join(names, ", "));
      }
      wanted.push_back(*found);
    }
    variants = std::move(wanted);
    return {};
  }

  Result<Measured> measure(const Variant& variant, const std::function<void(LoadedModel&)>& look) {
    ModelOptions opening = model_options(options_);
    const BenchmarkRoom room = benchmark_room(benchmark_);
    opening.max_seq = room.max_seq;
    opening.backend.without = variant.chunk == 0 ? variant.ablation.name : "";
    LILY_TRY(const auto model, open_model(opening));
    if (look) look(*model);
    BenchmarkOptions benchmark = benchmark_;
    if (variant.chunk > 0) benchmark.chunk = variant.chunk;
    const std::string name =
        variant.ablation.name.empty() ? "everything on" : "without " + variant.ablation.name;
    benchmark.progress = [&](const std::string& what) { return benchmark_.progress(name + ", " + what); };
    LILY_TRY(auto rows, run_benchmark(*model, benchmark));
    return Measured{.variant = variant, .rows = std::move(rows)};
  }

  const Options& options_;
  BenchmarkOptions benchmark_;
};

// How much longer it takes without; above 1: the optimisation pays.
double prefill_factor(const BenchmarkRow& all, const BenchmarkRow& without) {
  return without.prefill_seconds() / all.prefill_seconds();
}
double decode_factor(const BenchmarkRow& all, const BenchmarkRow& without) {
  return without.decode_seconds() / all.decode_seconds();
}

// How far the machine itself moved between the two runs of everything; the worse of prefill and decode.
double drift(const AblationReport& report, std::size_t row) {
  const BenchmarkRow& first = report.first.rows[row];
  const BenchmarkRow& last = report.last.rows[row];
  return std::max(std::abs(prefill_factor(first, last) - 1), std::abs(decode_factor(first, last) - 1));
}

std::string still_line(const AblationReport& report, std::size_t row) {
  const double moved = drift(report, row);
  return fmt::format("everything on once more: {:.1f} % away{}\n", 100 * moved,
                     moved > kLargestSpread ? "; refused: differences of that size say nothing here" : "");
}

std::string format_text(const AblationReport& report) {
  std::string text = fmt::format("{} on {}\n", report.model, report.backend);
  for (std::size_t row = 0; row < report.first.rows.size(); ++row) {
    const BenchmarkRow& all = report.first.rows[row];
    text +=
        fmt::format("\n{:<24} {:>14} {:>8} {:>13} {:>8}  in its place\n",
                    fmt::format("{}, without", all.shape.name()), "prefill tok/s", "", "decode tok/s", "");
    text += fmt::format("{:<24} {:>14.1f} {:>8} {:>13.2f} {:>8}\n", "(everything on)",
                        all.prefill_tokens_per_second(), "", all.decode_tokens_per_second(), "");
    for (const Measured& measured : report.each) {
      const BenchmarkRow& without = measured.rows[row];
      text += fmt::format("{:<24} {:>14.1f} {:>7.2f}x {:>13.2f} {:>7.2f}x  {}\n",
                          measured.variant.ablation.name, without.prefill_tokens_per_second(),
                          prefill_factor(all, without), without.decode_tokens_per_second(),
                          decode_factor(all, without), measured.variant.ablation.what);
    }
    text += still_line(report, row);
  }
  return text;
}

std::string format_markdown(const AblationReport& report) {
  std::string text = fmt::format("{} on {}; lily {} {}\n", report.model, report.backend, version(), commit());
  for (std::size_t row = 0; row < report.first.rows.size(); ++row) {
    const BenchmarkRow& all = report.first.rows[row];
    text +=
        fmt::format("\n| {}, without | in its place | prefill, tok/s | slower | decoding, tok/s | slower |\n",
                    all.shape.name());
    text += "|---|---|---|---|---|---|\n";
    text += fmt::format("| (everything on) | | {:.1f} | | {:.2f} | |\n", all.prefill_tokens_per_second(),
                        all.decode_tokens_per_second());
    for (const Measured& measured : report.each) {
      const BenchmarkRow& without = measured.rows[row];
      text += fmt::format("| {} | {} | {:.1f} | {:.2f}x | {:.2f} | {:.2f}x |\n",
                          measured.variant.ablation.name, measured.variant.ablation.what,
                          without.prefill_tokens_per_second(), prefill_factor(all, without),
                          without.decode_tokens_per_second(), decode_factor(all, without));
    }
    text += "\n" + still_line(report, row);
  }
  return text;
}

std::string format_json(const AblationReport& report) {
  nlohmann::ordered_json json = {
      {"version", version()}, {"commit", commit()}, {"model", report.model}, {"backend", report.backend}};
  json["contexts"] = nlohmann::ordered_json::array();
  for (std::size_t row = 0; row < report.first.rows.size(); ++row) {
    const BenchmarkRow& all = report.first.rows[row];
    auto each = nlohmann::ordered_json::array();
    for (const Measured& measured : report.each) {
      const BenchmarkRow& without = measured.rows[row];
      each.push_back({{"without", measured.variant.ablation.name},
                      {"in_its_place", measured.variant.ablation.what},
                      {"prefill_tokens_per_second", without.prefill_tokens_per_second()},
                      {"prefill_factor", prefill_factor(all, without)},
                      {"decode_tokens_per_second", without.decode_tokens_per_second()},
                      {"decode_factor", decode_factor(all, without)},
                      {"refused", without.refused()}});
    }
    json["contexts"].push_back({{"context", all.shape.prompt},
                                {"prefill_tokens_per_second", all.prefill_tokens_per_second()},
                                {"decode_tokens_per_second", all.decode_tokens_per_second()},
                                {"drift", drift(report, row)},
                                {"ablations", each}});
  }
  return json_document(json);
}

}  // namespace

Result<void> run_ablate(const Options& options) {
  console::Status status;
  const Interrupt interrupt;
  BenchmarkOptions benchmark{.shapes = {},
                             .decode = options.decode,
                             .rounds = options.rounds,
                             .chunk = options.chunk,
                             .progress = {}};
  for (const std::int64_t context : options.contexts) benchmark.shapes.push_back({.prompt = context});
  if (benchmark.shapes.empty()) benchmark.shapes.push_back({.prompt = kDefaultContext});
  benchmark.progress = [&](const std::string& what) {
    status.show(what);
    return !interrupt.pending();
  };
  const auto report = Ablating(options, benchmark).run();
  status.show("");
  if (!report.ok()) return interrupt.pending() ? interrupted() : report.error();
  LILY_TRY_VOID(console::print(format_text(*report)));
  if (!options.json_file.empty()) LILY_TRY_VOID(write_file(options.json_file, format_json(*report)));
  if (!options.markdown_file.empty()) {
    LILY_TRY_VOID(write_file(options.markdown_file, format_markdown(*report)));
  }
  return {};
}

}  // namespace lily
