#include "checkpoint/quantize.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/atomic_file.h"
#include "base/bf16.h"
#include "base/threads.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/json.h"
#include "checkpoint/layout.h"
#include "checkpoint/original_tensors.h"
#include "checkpoint/output_directory.h"
#include "checkpoint/report.h"
#include "checkpoint/shards.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kChunkValues = 1 << 18;  ///< quantised by a thread at once
constexpr const char* kStateFile = "quantize.json";

// The module of a matrix's tensor, or nothing for a vector.
std::optional<std::string> module_of(const TensorPlan& plan, const std::set<std::string>& modules) {
  const std::string module = plan.name.substr(0, plan.name.rfind('.'));
  if (modules.contains(module)) return module;
  return std::nullopt;
}

std::set<std::string> modules_of(std::span<const TensorPlan> layout) {
  std::set<std::string> modules;
  for (const TensorPlan& plan : layout) {
    if (plan.dtype == DType::kU32) modules.insert(plan.name.substr(0, plan.name.rfind('.')));
  }
  return modules;
}

/// Which modules get which bits.
Quantization choose_formats(ModelConfig config, const QuantizeOptions& options) {
  Quantization chosen{.defaults = options.quantization, .overrides = {}};
  config.quantization = chosen;
  for (const std::string& module : modules_of(published_layout(config))) {
    const QuantizationSpec spec = format_of(module, options.quantization, options.rules);
    if (spec != options.quantization) chosen.overrides[module] = spec;
  }
  return chosen;
}

/// Where a tensor of a shard goes.
struct Target {
  const OutputFile* file;
  std::int64_t offset;
};

/// What one module or vector becomes; without a target it lies in another shard.
struct Job {
  std::string name;
  ConvertedTensor source;
  std::int64_t rows = 0;
  QuantizationSpec spec;
  bool quantized = false;
  bool keeps_f32 = false;        ///< a vector that the original keeps in f32
  std::optional<Target> values;  ///< codes, or a vector's numbers
  std::optional<Target> scales;
  std::optional<Target> biases;
};

/// Rows [begin, end) of a job.
struct Chunk {
  const Job* job;
  std::int64_t begin;
  std::int64_t end;
};

template <class T>
Result<void> write_part(const std::optional<Target>& target, std::int64_t at, const std::vector<T>& values) {
  if (!target) return {};
  return target->file->write(target->offset + at * static_cast<std::int64_t>(sizeof(T)),
                             std::as_bytes(std::span(values)));
}

Result<void> quantize_chunk(const Chunk& chunk, QuantizerRounding rounding) {
  const Job& job = *chunk.job;
  const std::int64_t columns = job.source.columns;
  const auto rows = static_cast<std::size_t>(chunk.end - chunk.begin);
  const auto row_bytes = static_cast<std::size_t>(columns * job.spec.bits / 8);
  const auto groups = static_cast<std::size_t>(columns / job.spec.group_size);
  std::vector<float> row(static_cast<std::size_t>(columns));
  std::vector<std::byte> codes(rows * row_bytes);
  std::vector<std::uint16_t> scales(rows * groups);
  std::vector<std::uint16_t> biases(rows * groups);
  for (std::size_t r = 0; r < rows; ++r) {
    read_row(job.source, chunk.begin + static_cast<std::int64_t>(r), row);
    const PackedRow packed{.codes = std::span(codes).subspan(r * row_bytes, row_bytes),
                           .scales = std::span(scales).subspan(r * groups, groups),
                           .biases = std::span(biases).subspan(r * groups, groups)};
    if (!quantize_row(row, job.spec, rounding, packed)) {
      return fail(ErrorCode::kCorrupt, "{}: row {} holds a number that is not finite", job.name,
                  chunk.begin + static_cast<std::int64_t>(r));
    }
  }
  LILY_TRY_VOID(write_part(job.values, chunk.begin * static_cast<std::int64_t>(row_bytes), codes));
  LILY_TRY_VOID(write_part(job.scales, chunk.begin * static_cast<std::int64_t>(groups), scales));
  return write_part(job.biases, chunk.begin * static_cast<std::int64_t>(groups), biases);
}

Result<void> copy_vector(const Chunk& chunk) {
  const Job& job = *chunk.job;
  if (job.keeps_f32) {
    const std::span<const std::byte> bytes = job.source.parts.front().tensor.data;
    return write_part(job.values, 0, std::vector<std::byte>(bytes.begin(), bytes.end()));
  }
  std::vector<float> row(static_cast<std::size_t>(job.source.columns));
  std::vector<std::uint16_t> values;
  for (std::int64_t r = chunk.begin; r < chunk.end; ++r) {
    read_row(job.source, r, row);
    for (const float value : row) values.push_back(f32_to_bf16(value));
  }
  return write_part(job.values, chunk.begin * job.source.columns, values);
}

std::int64_t bytes_of(const Chunk& chunk) {
  const Job& job = *chunk.job;
  const std::int64_t values = (chunk.end - chunk.begin) * job.source.columns;
  if (!job.quantized) return values * (job.keeps_f32 ? 4 : 2);
  const std::int64_t group_bytes = 2 * values / job.spec.group_size;
  return (job.values ? values * job.spec.bits / 8 : 0) + (job.scales ? group_bytes : 0) +
         (job.biases ? group_bytes : 0);
}

/// Everything a run works from: the source, the plan, and where it goes.
class Quantizer {
 public:
  Quantizer(const QuantizeOptions& options, Checkpoint& checkpoint, OriginalTensors& original)
      : options_(options), checkpoint_(checkpoint), original_(original), config_(checkpoint.config()) {
    config_.quantization = choose_formats(config_, options);
  }

  /// Finds every tensor's source, so that nothing is written for a checkpoint that lacks one.
  Result<void> plan() {
    std::vector<TensorPlan> layout = published_layout(config_);
    modules_ = modules_of(layout);
    std::vector<Error> problems;
    for (TensorPlan& plan : layout) {
      if (plan.name.ends_with(".scales") || plan.name.ends_with(".biases")) continue;
      if (auto found = find_source(plan); !found.ok()) problems.push_back(std::move(found).error());
    }
    if (auto left = checkpoint_.check_all_taken(); !left.ok()) problems.push_back(std::move(left).error());
    if (!problems.empty()) return combine(problems).in(checkpoint_.files().label());
    shards_ = cut_into_shards(std::move(layout), 0, options_.shard_bytes);
    return {};
  }

  Result<void> write(const WriteProgress& progress) {
    LILY_TRY(PartialDirectory directory, PartialDirectory::create(options_.out, Leftover::kResume));
    LILY_TRY_VOID(claim(directory.path()));
    LILY_TRY_VOID(directory.check_room(missing_bytes(directory.path())));
    LILY_TRY_VOID(write_shards(directory.path(), progress));
    LILY_TRY_VOID(write_texts(directory.path()));
    std::error_code ignored;
    fs::remove(directory.path() / kStateFile, ignored);
    return directory.commit();
  }

 private:
  Result<void> find_source(TensorPlan& plan) {
    const auto module = module_of(plan, modules_);
    Job job{.name = module.value_or(plan.name),
            .source = {},
            .spec = {},
            .values = {},
            .scales = {},
            .biases = {}};
    std::vector<std::int64_t> shape = plan.shape;
    if (module) {
      job.spec = config_.quantization->of(*module);
      job.quantized = true;
      shape.back() = shape.back() * 32 / job.spec.bits;
      if (shape.back() % job.spec.group_size != 0) {
        return fail(ErrorCode::kUnsupported, "{}: {} inputs are no whole number of groups of {}", *module,
                    shape.back(), job.spec.group_size);
      }
    }
    LILY_TRY(job.source, original_.find(plan.name, shape));
    // As MLX converts: the decays stay as they are, all else becomes bf16.
    if (plan.name.ends_with("A_log") && job.source.parts.front().tensor.dtype == DType::kF32) {
      plan.dtype = DType::kF32;
      job.keeps_f32 = true;
    }
    for (const TensorRows& part : job.source.parts) job.rows += part.count;
    jobs_.emplace(job.name, std::move(job));
    return {};
  }

  /// What two runs have to have in common for one to go on where the other stopped.
  [[nodiscard]] std::string state() const {
    nlohmann::json state = {{"bits", options_.quantization.bits},
                            {"group_size", options_.quantization.group_size},
                            {"shard_bytes", options_.shard_bytes},
                            {"rounding", options_.rounding == QuantizerRounding::kMetal ? "metal" : "cpu"}};
    for (const QuantizeRule& rule : options_.rules) {
      state["rules"].push_back({rule.pattern, rule.spec.bits, rule.spec.group_size});
    }
    for (const std::string& name : checkpoint_.files().names()) {
      if (!name.ends_with(".safetensors")) continue;
      std::error_code error;
      const fs::path path = fs::path(options_.source) / name;
      state["source"][name] = {fs::file_size(path, error),
                               fs::last_write_time(path, error).time_since_epoch().count()};
    }
    return state.dump(1);
  }

  Result<void> claim(const fs::path& directory) const {
    std::error_code error;
    if (fs::is_empty(directory, error)) return write_file(directory / kStateFile, state());
    LILY_TRY(const auto files, ModelFiles::open(directory.string()));
    const auto found = files->text(kStateFile);
    if (!found.ok() || *found != state()) {
      return fail(ErrorCode::kInvalidArgument,
                  "{}: left by a run of another source or other options: remove it", directory.string());
    }
    return {};
  }

  static std::int64_t file_bytes(const ShardPlan& shard) {
    return static_cast<std::int64_t>(safetensors_header(shard).size()) + data_bytes(std::span(&shard, 1));
  }

  [[nodiscard]] bool is_written(const fs::path& directory, std::size_t shard) const {
    std::error_code error;
    const auto size = fs::file_size(directory / shard_name(shard + 1, shards_.size()), error);
    return !error && static_cast<std::int64_t>(size) == file_bytes(shards_[shard]);
  }

  [[nodiscard]] std::int64_t missing_bytes(const fs::path& directory) const {
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      if (!is_written(directory, i)) bytes += file_bytes(shards_[i]);
    }
    return bytes;
  }

  Result<void> write_shards(const fs::path& directory, const WriteProgress& progress) {
    const std::int64_t total = data_bytes(shards_);
    ThreadPool pool(options_.threads > 0 ? options_.threads : available_cores());
    WriteStatus status(total, progress);
    for (std::size_t i = 0; i < shards_.size() && !status.stopped(); ++i) {
      if (is_written(directory, i)) {
        status.add({}, data_bytes(std::span(&shards_[i], 1)));
        continue;
      }
      if (auto written = write_shard(directory, i, pool, status); !written.ok()) return written;
    }
    return status.take();
  }

  // Under another name until it is whole and on the disk, so that a run that goes on can trust the name.
  Result<void> write_shard(const fs::path& directory, std::size_t index, ThreadPool& pool,
                           WriteStatus& status) {
    const ShardPlan& shard = shards_[index];
    const std::string name = shard_name(index + 1, shards_.size());
    const fs::path unfinished = directory / (name + ".unfinished");
    LILY_TRY(const OutputFile file, OutputFile::open(unfinished));
    LILY_TRY_VOID(file.resize(file_bytes(shard)));
    const std::string header = safetensors_header(shard);
    LILY_TRY_VOID(file.write(0, std::as_bytes(std::span(header))));
    const std::vector<const Job*> jobs = aim(shard, file, static_cast<std::int64_t>(header.size()));
    std::vector<Chunk> chunks;
    for (const Job* job : jobs) {
      const std::int64_t rows = std::max<std::int64_t>(1, kChunkValues / job->source.columns);
      for (std::int64_t at = 0; at < job->rows; at += job->keeps_f32 ? job->rows : rows) {
        chunks.push_back({job, at, job->keeps_f32 ? job->rows : std::min(at + rows, job->rows)});
      }
    }
    pool.parallel_tasks(std::ssize(chunks), [&](std::int64_t task, int) {
      if (status.stopped()) return;
      const Chunk& chunk = chunks[static_cast<std::size_t>(task)];
      status.add(chunk.job->quantized ? quantize_chunk(chunk, options_.rounding) : copy_vector(chunk),
                 bytes_of(chunk));
    });
    if (status.stopped()) return {};
    LILY_TRY_VOID(file.sync());
    std::error_code error;
    fs::rename(unfinished, directory / name, error);
    if (error) return fail(ErrorCode::kIo, "{}: cannot rename: {}", unfinished.string(), error.message());
    return {};
  }

  /// Gives every job with a tensor in `shard` its targets there.
  std::vector<const Job*> aim(const ShardPlan& shard, const OutputFile& file, std::int64_t offset) {
    std::set<const Job*> touched;
    std::vector<const Job*> jobs;
    for (auto& [name, job] : jobs_) job.values = job.scales = job.biases = std::nullopt;
    for (const TensorPlan& plan : shard) {
      Job& job = jobs_.at(module_of(plan, modules_).value_or(plan.name));
      const bool scales = job.quantized && plan.name.ends_with(".scales");
      const bool biases = job.quantized && plan.name.ends_with(".biases");
      (scales ? job.scales : biases ? job.biases : job.values) = Target{&file, offset};
      if (touched.insert(&job).second) jobs.push_back(&job);
      offset += plan.bytes();
    }
    return jobs;
  }

  Result<void> write_texts(const fs::path& directory) const {
    ModelFiles& files = checkpoint_.files();
    for (const std::string& name : files.names()) {
      const bool text = name.ends_with(".json") || name.ends_with(".jinja") || name == "merges.txt";
      if (!text || name == "config.json" || name == "model.safetensors.index.json") continue;
      LILY_TRY(const std::string_view bytes, files.text(name));
      LILY_TRY_VOID(write_file(directory / name, bytes));
    }
    LILY_TRY_VOID(write_file(directory / "model.safetensors.index.json", shard_index(shards_)));
    LILY_TRY(const std::string_view config, files.text("config.json"));
    return write_file(directory / "config.json", config_text(config));
  }

  // The original's keys, sorted as MLX sorts them, and what was done.
  [[nodiscard]] std::string config_text(std::string_view original) const {
    auto config =
        nlohmann::ordered_json::parse(original).get<std::map<std::string, nlohmann::ordered_json>>();
    const Quantization& q = *config_.quantization;
    nlohmann::ordered_json block = {
        {"group_size", q.defaults.group_size}, {"bits", q.defaults.bits}, {"mode", "affine"}};
    for (const auto& [module, spec] : q.overrides) {
      block[module] = {{"group_size", spec.group_size}, {"bits", spec.bits}};
    }
    config["quantization"] = config["quantization_config"] = block;
    return nlohmann::ordered_json(config).dump(4);
  }

  const QuantizeOptions& options_;
  Checkpoint& checkpoint_;
  OriginalTensors& original_;
  ModelConfig config_;
  std::set<std::string> modules_;
  std::vector<ShardPlan> shards_;
  std::map<std::string, Job> jobs_;  ///< by module, or by name of a vector
};

}  // namespace

Result<void> quantize(const QuantizeOptions& options, const WriteProgress& progress) {
  LILY_TRY(auto files, ModelFiles::open(options.source));
  const std::string label = files->label();
  LILY_TRY(Checkpoint checkpoint, Checkpoint::open(std::move(files)));
  auto original = OriginalTensors::of(checkpoint);
  if (!original.ok()) return std::move(original).error().in(label);
  Quantizer quantizer(options, checkpoint, *original);
  LILY_TRY_VOID(quantizer.plan());
  return quantizer.write(progress);
}

}  // namespace lily
