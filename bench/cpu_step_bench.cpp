// One step of a model at any position, and where its time goes: a long context without reading it first.
//
//   cpu_step_bench MODEL [position=0] [rows=1] [repeats=5] [threads=0] [isa=auto] [kv=auto]
//
// rows=1 decodes, more are a prefill chunk. The K/V rows before the position are made up.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>

#include "backend/backend.h"
#include "base/memory.h"
#include "base/threads.h"
#include "checkpoint/checkpoint.h"
#include "model/forward.h"

namespace lily {
namespace {

using Clock = std::chrono::steady_clock;

/// Adds up what each kind of block takes.
class TimedBackend final : public Backend {
 public:
  explicit TimedBackend(Backend& backend) : backend_(backend) {}

  std::map<std::string, double> seconds;

  [[nodiscard]] std::string description() const override { return backend_.description(); }
  [[nodiscard]] std::int64_t max_rows() const override { return backend_.max_rows(); }
  void begin(const Batch& batch) override { backend_.begin(batch); }
  void embed(const EmbedBlock& block) override {
    timed("embed", [&] { backend_.embed(block); });
  }
  void recurrent_block(const RecurrentBlock& block) override {
    timed("recurrent", [&] { backend_.recurrent_block(block); });
  }
  void attention_block(const AttentionBlock& block) override {
    timed("attention", [&] { backend_.attention_block(block); });
  }
  void mlp_block(const MlpBlock& block) override {
    timed("mlp", [&] { backend_.mlp_block(block); });
  }
  void moe_block(const MoeBlock& block) override {
    timed("moe", [&] { backend_.moe_block(block); });
  }
  void head(const HeadBlock& block) override {
    timed("head", [&] { backend_.head(block); });
  }
  Result<void> finish() override { return backend_.finish(); }
  void read_residual(std::span<float> out) override { backend_.read_residual(out); }
  void zero_slot(SlotId slot) override { backend_.zero_slot(slot); }
  void copy_slot(SlotId from, SlotId to) override { backend_.copy_slot(from, to); }
  void copy_page(PageId from, PageId to) override { backend_.copy_page(from, to); }
  [[nodiscard]] std::int64_t slot_bytes() const override { return backend_.slot_bytes(); }
  [[nodiscard]] std::int64_t page_bytes() const override { return backend_.page_bytes(); }
  void read_slot(SlotId slot, std::span<std::byte> out) override { backend_.read_slot(slot, out); }
  void write_slot(SlotId slot, std::span<const std::byte> in) override { backend_.write_slot(slot, in); }
  void read_page(PageId page, std::span<std::byte> out) override { backend_.read_page(page, out); }
  void write_page(PageId page, std::span<const std::byte> in) override { backend_.write_page(page, in); }

 private:
  template <class Run>
  void timed(const char* name, Run run) {
    const auto start = Clock::now();
    run();
    seconds[name] += std::chrono::duration<double>(Clock::now() - start).count();
  }
  Backend& backend_;
};

struct Settings {
  std::string model;
  std::int64_t position = 0;
  std::int64_t rows = 1;
  std::int64_t repeats = 5;
  BackendOptions backend = {.name = "cpu"};
};

Result<Settings> parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : argument.substr(equals + 1);
    if (equals == std::string::npos) {
      settings.model = argument;
    } else if (name == "position") {
      settings.position = std::atoll(value.c_str());
    } else if (name == "rows") {
      settings.rows = std::atoll(value.c_str());
    } else if (name == "repeats") {
      settings.repeats = std::atoll(value.c_str());
    } else if (name == "threads") {
      settings.backend.threads = std::atoi(value.c_str());
    } else if (name == "isa") {
      settings.backend.isa = value;
    } else if (name == "kv") {
      settings.backend.kv_type = value;
    } else {
      return fail(ErrorCode::kInvalidArgument, "unknown argument '{}'", argument);
    }
  }
  if (settings.model.empty()) return fail(ErrorCode::kInvalidArgument, "expected a MODEL, found none");
  return settings;
}

Result<void> run(const Settings& settings) {
  LILY_TRY(const auto files, ModelFiles::open(settings.model));
  ThreadPool prefaulting(available_cores());
  for (const std::string& name : files->names()) {
    if (!name.ends_with(".safetensors")) continue;
    LILY_TRY(const auto bytes, files->bytes(name));
    prefault(bytes, prefaulting);  // a step's time, not that of mapping its pages
  }
  LILY_TRY(Checkpoint checkpoint, Checkpoint::open(files));
  LILY_TRY(const ModelWeights weights, load_weights(checkpoint));
  const std::int64_t pages = (settings.position + settings.rows + kKvPageTokens - 1) / kKvPageTokens;
  LILY_TRY(const auto backend, make_backend(settings.backend, weights,
                                            {.kv_pages = pages, .slots = 1, .max_rows = settings.rows}));
  std::vector<PageId> numbers;
  // Small positive numbers, whichever the type.
  const std::vector<std::byte> page(static_cast<std::size_t>(backend->page_bytes()), std::byte{0x3c});
  for (PageId p = 0; p < pages; ++p) {
    backend->write_page(p, page);
    numbers.push_back(p);
  }
  std::vector<float> logits(static_cast<std::size_t>(weights.shapes.vocab));
  std::vector<std::pair<double, std::map<std::string, double>>> steps;
  std::uint64_t token = 0;
  for (std::int64_t i = -1; i < settings.repeats; ++i) {  // the first one warms up
    std::vector<TokenId> tokens;
    for (std::int64_t t = 0; t < settings.rows; ++t) {
      tokens.push_back(static_cast<TokenId>((token++ * 2654435761ULL & 0xffffffffULL) %
                                            static_cast<std::uint64_t>(weights.shapes.vocab)));
    }
    backend->zero_slot(0);
    TimedBackend timed(*backend);
    const auto start = Clock::now();
    const Batch batch{.segments = {{.tokens = tokens,
                                    .position = settings.position,
                                    .pages = numbers,
                                    .slot = 0,
                                    .phase = settings.rows == 1 ? Phase::kDecode : Phase::kPrefill}}};
    LILY_TRY_VOID(forward(timed, weights, batch, logits));
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (i >= 0) steps.emplace_back(seconds, timed.seconds);
  }
  std::ranges::sort(steps, {}, [](const auto& step) { return step.first; });
  const auto print = [&](const char* name, const auto& step) {
    fmt::print("{:<7} {:9.2f} ms  {:8.2f} tok/s ", name, step.first * 1e3,
               static_cast<double>(settings.rows) / step.first);
    for (const auto& [block, seconds] : step.second) fmt::print("  {} {:.2f}", block, seconds * 1e3);
    fmt::print("\n");
  };
  fmt::print("{}, {} rows at {}\n", backend->description(), settings.rows, settings.position);
  print("best", steps.front());
  print("median", steps[steps.size() / 2]);
  return {};
}

}  // namespace
}  // namespace lily

int main(int argc, char** argv) {
  const auto settings = lily::parse(argc, argv);
  const auto done = settings.ok() ? lily::run(*settings) : lily::Result<void>(settings.error());
  if (!done.ok()) fmt::print(stderr, "cpu_step_bench: {}\n", done.error().message);
  return done.ok() ? 0 : 1;
}
