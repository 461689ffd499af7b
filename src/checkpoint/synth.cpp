#include "checkpoint/synth.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/atomic_file.h"
#include "base/threads.h"
#include "checkpoint/layout.h"
#include "checkpoint/model_files.h"
#include "checkpoint/output_directory.h"
#include "checkpoint/shards.h"
#include "checkpoint/synth_config.h"
#include "checkpoint/synth_values.h"
#include "checkpoint/write_status.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

// Large enough that system calls cost nothing, small enough to stay in a core's cache.
constexpr std::int64_t kChunkBytes = 1 << 20;

// A part of one tensor, and where it goes.
struct Chunk {
  const OutputFile* file;
  std::int64_t file_offset;
  SynthTensor tensor;
  std::int64_t tensor_offset;
  std::int64_t bytes;
};

Result<void> write_chunks(std::span<const Chunk> chunks, std::int64_t total, int threads,
                          const WriteProgress& progress) {
  ThreadPool pool(threads);
  std::vector<std::vector<std::byte>> buffers(static_cast<std::size_t>(threads),
                                              std::vector<std::byte>(kChunkBytes));
  WriteStatus status(total, progress);
  pool.parallel_tasks(std::ssize(chunks), [&](std::int64_t task, int thread) {
    if (status.stopped()) return;
    const Chunk& chunk = chunks[static_cast<std::size_t>(task)];
    const auto part =
        std::span(buffers[static_cast<std::size_t>(thread)]).first(static_cast<std::size_t>(chunk.bytes));
    chunk.tensor.fill(chunk.tensor_offset, part);
    status.add(chunk.file->write(chunk.file_offset, part), chunk.bytes);
  });
  return status.take();
}

// MLX lays data out in the order of a hash map: any order but the names'. Here, that of the names read
// backwards.
void scatter(ShardPlan& shard) {
  std::ranges::sort(shard, {}, [](const TensorPlan& tensor) {
    return std::string(tensor.name.rbegin(), tensor.name.rend());
  });
}

void add_chunks(const OutputFile& file, std::int64_t file_offset, const TensorPlan& plan,
                const SynthTensor& tensor, std::vector<Chunk>& chunks) {
  for (std::int64_t at = 0; at < plan.bytes(); at += kChunkBytes) {
    chunks.push_back({&file, file_offset + at, tensor, at, std::min(kChunkBytes, plan.bytes() - at)});
  }
}

Result<void> write_shards(const fs::path& directory, std::vector<ShardPlan>& shards,
                          const ModelConfig& config, const SynthOptions& options,
                          const WriteProgress& progress) {
  std::vector<OutputFile> files;
  files.reserve(shards.size());  // chunks point into it
  std::vector<Chunk> chunks;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    scatter(shards[i]);
    LILY_TRY(OutputFile file, OutputFile::create(directory / shard_name(i + 1, shards.size())));
    files.push_back(std::move(file));
    const std::string header = safetensors_header(shards[i]);
    LILY_TRY_VOID(files.back().write(0, std::as_bytes(std::span(header))));
    auto offset = static_cast<std::int64_t>(header.size());
    for (const TensorPlan& plan : shards[i]) {
      add_chunks(files.back(), offset, plan, SynthTensor(plan, config, options.seed), chunks);
      offset += plan.bytes();
    }
  }
  return write_chunks(chunks, data_bytes(shards), options.threads > 0 ? options.threads : available_cores(),
                      progress);
}

Result<void> copy_tokenizer(const std::string& from, const fs::path& directory) {
  LILY_TRY(const auto files, ModelFiles::open(from));
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
    if (!files->contains(name)) continue;
    LILY_TRY(const std::string_view text, files->text(name));
    LILY_TRY_VOID(write_file(directory / name, text));
  }
  return {};
}

}  // namespace

Result<void> synthesize(const SynthOptions& options, const WriteProgress& progress) {
  LILY_TRY(const SynthPreset preset, find_synth_preset(options.preset));
  const std::string config_text = synth_config_json(preset, options.quantization);
  LILY_TRY(const ModelConfig config, parse_config(config_text));
  std::vector<ShardPlan> shards = cut_into_shards(published_layout(config), preset.omitted_bytes);

  LILY_TRY(PartialDirectory directory, PartialDirectory::create(options.out, Leftover::kRefuse));
  LILY_TRY_VOID(directory.check_room(data_bytes(shards)));
  LILY_TRY_VOID(write_file(directory.path() / "config.json", config_text));
  LILY_TRY_VOID(
      write_file(directory.path() / "generation_config.json", synth_generation_config_json(preset)));
  LILY_TRY_VOID(write_file(directory.path() / "model.safetensors.index.json", shard_index(shards)));
  if (!options.tokenizer_from.empty())
    LILY_TRY_VOID(copy_tokenizer(options.tokenizer_from, directory.path()));
  LILY_TRY_VOID(write_shards(directory.path(), shards, config, options, progress));
  return directory.commit();
}

}  // namespace lily
