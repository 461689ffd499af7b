// lily bench: what to measure, on a model of our own or on a server, and where the report goes.
#include <algorithm>
#include <array>
#include <chrono>

#include "backend/cpu/bandwidth.h"
#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/threads.h"
#include "cli/api_client.h"
#include "cli/bench_http.h"
#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/interrupt.h"
#include "cli/open.h"
#include "engine/benchmark.h"

namespace lily {
namespace {

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

// The lengths that were asked for; the usual ones, as far as the model goes, where nothing was.
std::vector<BenchmarkShape> shapes_of(const Options& options, std::int64_t longest) {
  std::vector<BenchmarkShape> shapes;
  shapes.reserve(options.contexts.size() + options.warm.size() + options.streams.size());
  for (const std::int64_t context : options.contexts) shapes.push_back({.prompt = context});
  for (const std::int64_t turn : options.warm) {
    shapes.push_back({.prompt = turn, .cached = options.warm_context});
  }
  for (const std::int64_t streams : options.streams) {
    shapes.push_back({.prompt = options.stream_context, .streams = streams});
  }
  if (!shapes.empty()) return shapes;
  for (const std::int64_t context : kDefaultContexts) {
    if (context + options.decode <= longest) shapes.push_back({.prompt = context});
  }
  return shapes;
}

// Opens the model with room for all shapes. Those that need more memory than there is are left out, the
// largest first, and said to be.
Result<std::unique_ptr<LoadedModel>> open_with_room(ModelOptions opening, BenchmarkOptions& benchmark,
                                                    std::vector<std::string>& left_out) {
  const auto room_of = [&](const BenchmarkShape& shape) {
    return benchmark_room({.shapes = {shape}, .decode = benchmark.decode, .progress = {}}).kv_tokens;
  };
  for (;;) {
    const BenchmarkRoom room = benchmark_room(benchmark);
    opening.max_seq = room.max_seq;
    opening.slots = room.slots;
    opening.kv_tokens = room.kv_tokens;
    auto model = open_model(opening);
    if (model.ok() || model.error().code != ErrorCode::kExhausted || benchmark.shapes.size() == 1) {
      return model;
    }
    const auto largest = std::ranges::max_element(benchmark.shapes, {}, room_of);
    left_out.push_back(fmt::format("{}: {}", largest->name(), model.error().message));
    benchmark.shapes.erase(largest);
  }
}

Result<void> check_lengths(const BenchmarkOptions& benchmark, std::int64_t longest) {
  for (const BenchmarkShape& shape : benchmark.shapes) {
    const std::int64_t length = shape.cached + shape.prompt + benchmark.decode;
    if (length <= longest) continue;
    return fail(ErrorCode::kInvalidArgument, "{} and {} decoded: expected at most {} tokens, found {}",
                shape.name(), benchmark.decode, longest, length);
  }
  return {};
}

Result<void> measure_model(const Options& options, BenchmarkOptions& benchmark, BenchReport& report) {
  LILY_TRY(const std::int64_t longest, longest_sequence(options.model));
  benchmark.shapes = shapes_of(options, longest);
  LILY_TRY_VOID(check_lengths(benchmark, longest));
  const ModelOptions opening = model_options(options);
  const auto start = std::chrono::steady_clock::now();
  LILY_TRY(const auto model, open_with_room(opening, benchmark, report.left_out));
  report.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  report.model = model->name();
  report.backend = model->backend().description();
  benchmark.progress("measuring memory");
  LILY_TRY(report.bandwidth, measure_bandwidth(*model, opening.backend.threads));
  benchmark.progress("measuring arithmetic");
  report.arithmetic = model->backend().measure_arithmetic().value_or(0);
  LILY_TRY(report.rows, run_benchmark(*model, benchmark));
  report.planned = model->memory_plan().total();
  report.memory = memory_use();
  return {};
}

Result<void> measure_server(const Options& options, BenchmarkOptions& benchmark, BenchReport& report) {
  benchmark.shapes = shapes_of(options, kDefaultContexts.back() + benchmark.decode);
  LILY_TRY(const ApiClient client, ApiClient::create(options.http, options.api_key_file));
  LILY_TRY(report.model, served_model(client));
  report.backend = options.http;
  LILY_TRY(report.rows, run_http_benchmark(client, report.model, benchmark));
  return {};
}

Result<void> write_files(const Options& options, const BenchReport& report) {
  const std::array<std::pair<const std::string*, std::string (*)(const BenchReport&)>, 4> files = {
      {{&options.json_file, bench_json},
       {&options.csv_file, bench_csv},
       {&options.markdown_file, bench_markdown},
       {&options.svg_file, bench_svg}}};
  for (const auto& [file, form] : files) {
    if (!file->empty()) LILY_TRY_VOID(write_file(*file, form(report)));
  }
  return {};
}

}  // namespace

Result<void> run_bench(const Options& options) {
  console::Status status;
  const Interrupt interrupt;
  BenchmarkOptions benchmark{.shapes = {},
                             .decode = options.decode,
                             .rounds = options.rounds,
                             .chunk = options.chunk,
                             .progress = {}};
  benchmark.progress = [&](const std::string& what) {
    status.show(what);
    return !interrupt.pending();
  };
  BenchReport report{.decode = options.decode, .rounds = options.rounds};
  const auto measured = options.http.empty() ? measure_model(options, benchmark, report)
                                             : measure_server(options, benchmark, report);
  status.show("");
  if (!measured.ok()) return interrupt.pending() ? interrupted() : measured.error();
  LILY_TRY_VOID(console::print(bench_text(report)));
  return write_files(options, report);
}

}  // namespace lily
