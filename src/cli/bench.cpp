// lily bench: prefill and decode speed by context length, against the memory bandwidth.
#include <algorithm>
#include <array>
#include <ctime>
#include <nlohmann/json.hpp>

#include "backend/cpu/bandwidth.h"
#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/threads.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/interrupt.h"
#include "cli/json_text.h"
#include "cli/open.h"
#include "cli/version.h"
#include "engine/benchmark.h"

namespace lily {
namespace {

// Runs of a length that differ by more than this are flagged: something else was going on.
constexpr double kLargeSpread = 0.03;

constexpr std::array<std::int64_t, 5> kDefaultContexts = {256, 512, 1024, 2048, 4096};

// Bytes a second of reading the mapped weights with as many threads as the CPU backend takes; 0 where the
// weights are read from a card's memory, which is not measured. The largest file is enough: a shard is
// several times any cache.
Result<double> measure_bandwidth(LoadedModel& model, int threads) {
  if (model.backend().host_bytes() == 0) return 0.0;
  ModelFiles& files = *model.weights().files;
  std::span<const std::byte> largest;
  for (const std::string& name : files.names()) {
    if (!name.ends_with(".safetensors")) continue;
    LILY_TRY(const auto bytes, files.bytes(name));
    if (bytes.size() > largest.size()) largest = bytes;
  }
  ThreadPool pool(threads > 0 ? threads : available_cores());
  return cpu::measure_read_bandwidth(largest, pool);
}

// The model's limit, without loading it: how much state to make room for depends on it.
Result<std::int64_t> longest_sequence(const std::string& model) {
  LILY_TRY(const auto files, ModelFiles::open(model));
  LILY_TRY(const std::string_view text, files->text("config.json"));
  auto config = parse_config(text);
  if (!config.ok()) return std::move(config).error().in(files->label() + "/config.json");
  return config->max_position_embeddings;
}

std::vector<std::int64_t> contexts_of(const Options& options, std::int64_t longest) {
  if (!options.contexts.empty()) return options.contexts;
  std::vector<std::int64_t> contexts;
  for (const std::int64_t context : kDefaultContexts) {
    if (context + options.decode <= longest) contexts.push_back(context);
  }
  return contexts;
}

struct Report {
  std::string model;
  std::string backend;
  double bandwidth = 0;      // bytes a second; 0: not measured
  std::int64_t planned = 0;  // most bytes that may be resident
  MemoryUse memory;          // after the last run
  std::vector<BenchmarkRow> rows;
};

std::string format_text(const Report& report) {
  std::string text = fmt::format("{} on {}", report.model, report.backend);
  if (report.bandwidth > 0) text += fmt::format(", memory read at {:.1f} GB/s", report.bandwidth / 1e9);
  text += '\n';
  const auto shown = [](std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  text += fmt::format("resident {}, {} of it mapped files; {} planned for\n\n", shown(report.memory.resident),
                      shown(report.memory.mapped_files), shown(report.planned));
  text +=
      fmt::format("{:>8} {:>14} {:>12} {:>13} {:>9} {:>9} {:>7} {:>12} {:>7}\n", "context", "prefill tok/s",
                  "first token", "decode tok/s", "ms/token", "MB/token", "GB/s", "of bandwidth", "spread");
  for (const BenchmarkRow& row : report.rows) {
    const std::string share =
        report.bandwidth > 0 ? fmt::format("{:.0f} %", 100 * row.bytes_per_second() / report.bandwidth) : "-";
    text += fmt::format(
        "{:>8} {:>14.1f} {:>10.3f} s {:>13.2f} {:>9.2f} {:>9.1f} {:>7.1f} {:>12} {:>5.1f} %{}\n", row.context,
        row.prefill_tokens_per_second(), row.prefill_seconds(), row.decode_tokens_per_second(),
        1e3 / row.decode_tokens_per_second(), row.bytes_per_token / 1e6, row.bytes_per_second() / 1e9, share,
        100 * row.spread(), row.spread() > kLargeSpread ? " (!)" : "");
  }
  return text;
}

std::string format_csv(const Report& report) {
  std::string text =
      "context,prefill_tok_s,prefill_s,decode_tok_s,bytes_per_token,bytes_per_s,bandwidth_bytes_per_s,"
      "spread\n";
  for (const BenchmarkRow& row : report.rows) {
    text += fmt::format("{},{},{},{},{},{},{},{}\n", row.context, row.prefill_tokens_per_second(),
                        row.prefill_seconds(), row.decode_tokens_per_second(), row.bytes_per_token,
                        row.bytes_per_second(), report.bandwidth, row.spread());
  }
  return text;
}

std::string format_json(const Report& report, const Options& options) {
  nlohmann::ordered_json json = {{"version", version()},
                                 {"commit", commit()},
                                 {"unix_time", std::time(nullptr)},
                                 {"model", report.model},
                                 {"backend", report.backend},
                                 {"decode_steps", options.decode},
                                 {"rounds", options.rounds},
                                 {"bandwidth_bytes_per_second", report.bandwidth},
                                 {"planned_bytes", report.planned},
                                 {"resident_bytes", report.memory.resident},
                                 {"mapped_file_bytes", report.memory.mapped_files}};
  for (const BenchmarkRow& row : report.rows) {
    auto runs = nlohmann::ordered_json::array();
    for (const BenchmarkRun& run : row.runs) {
      runs.push_back({{"prefill_seconds", run.prefill_seconds}, {"step_seconds", run.step_seconds}});
    }
    json["contexts"].push_back({{"context", row.context},
                                {"prefill_tokens_per_second", row.prefill_tokens_per_second()},
                                {"prefill_seconds", row.prefill_seconds()},
                                {"decode_tokens_per_second", row.decode_tokens_per_second()},
                                {"bytes_per_token", row.bytes_per_token},
                                {"bytes_per_second", row.bytes_per_second()},
                                {"spread", row.spread()},
                                {"tokens", row.runs.front().tokens},
                                {"runs", runs}});
  }
  return json_document(json);
}

}  // namespace

Result<void> run_bench(const Options& options) {
  ModelOptions opening = model_options(options);
  LILY_TRY(const std::int64_t longest, longest_sequence(options.model));
  const std::vector<std::int64_t> contexts = contexts_of(options, longest);
  for (const std::int64_t context : contexts) {
    opening.max_seq = std::max(opening.max_seq, std::min(context, longest - options.decode) + options.decode);
  }
  LILY_TRY(const auto model, open_model(opening));
  Report report{.model = model->name(), .backend = model->backend().description(), .memory = {}, .rows = {}};
  console::Status status("measuring memory");
  LILY_TRY(report.bandwidth, measure_bandwidth(*model, opening.backend.threads));

  const Interrupt interrupt;
  BenchmarkOptions benchmark{.contexts = contexts,
                             .decode = options.decode,
                             .rounds = options.rounds,
                             .chunk = options.chunk,
                             .progress = {}};
  benchmark.progress = [&](const std::string& what) {
    status.show(what);
    return !interrupt.pending();
  };
  auto rows = run_benchmark(*model, benchmark);
  status.show("");
  if (!rows.ok()) return interrupt.pending() ? interrupted() : rows.error();
  report.rows = std::move(rows).value();
  report.planned = model->memory_plan().total();
  report.memory = memory_use();
  LILY_TRY_VOID(console::print(format_text(report)));
  if (!options.json_file.empty()) LILY_TRY_VOID(write_file(options.json_file, format_json(report, options)));
  if (!options.csv_file.empty()) LILY_TRY_VOID(write_file(options.csv_file, format_csv(report)));
  return {};
}

}  // namespace lily
