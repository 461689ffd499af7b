#include "checkpoint/synth.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <span>
#include <system_error>
#include <vector>

#include "base/atomic_file.h"
#include "base/threads.h"
#include "checkpoint/layout.h"
#include "checkpoint/model_files.h"
#include "checkpoint/shards.h"
#include "checkpoint/synth_config.h"
#include "checkpoint/synth_values.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

// Large enough that system calls cost nothing, small enough to stay in a core's cache.
constexpr std::int64_t kChunkBytes = 1 << 20;

ErrorCode code_of(int error) {
  return error == ENOSPC || error == EDQUOT ? ErrorCode::kExhausted : ErrorCode::kIo;
}

// `out`.partial, removed again unless commit() made it `out`.
class PartialDirectory {
 public:
  static Result<PartialDirectory> create(const fs::path& out) {
    fs::path target = out.has_filename() ? out : out.parent_path();  // "model/" is "model"
    std::error_code error;
    if (fs::exists(target, error) && !fs::is_empty(target, error)) {
      return fail(ErrorCode::kInvalidArgument, "{}: exists, expected a new directory", target.string());
    }
    PartialDirectory made(target, fs::path(target.string() + ".partial"));
    if (fs::exists(made.path_, error)) {
      const std::string path = std::exchange(made.path_, {}).string();
      return fail(ErrorCode::kInvalidArgument,
                  "{}: left by an interrupted run, or another one is at work: remove it", path);
    }
    if (!fs::create_directories(made.path_, error)) {
      return fail(ErrorCode::kIo, "{}: cannot create: {}", made.path_.string(), error.message());
    }
    return made;
  }

  PartialDirectory(PartialDirectory&& other) noexcept
      : target_(std::move(other.target_)), path_(std::exchange(other.path_, {})) {}
  PartialDirectory& operator=(PartialDirectory&&) = delete;
  PartialDirectory(const PartialDirectory&) = delete;
  PartialDirectory& operator=(const PartialDirectory&) = delete;
  ~PartialDirectory() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }

  [[nodiscard]] const fs::path& path() const { return path_; }

  Result<void> commit() {
    std::error_code error;
    fs::rename(path_, target_, error);  // replaces an empty directory
    if (error)
      return fail(ErrorCode::kIo, "{}: cannot rename to {}: {}", path_.string(), target_.string(),
                  error.message());
    path_.clear();
    return {};
  }

 private:
  PartialDirectory(fs::path target, fs::path path) : target_(std::move(target)), path_(std::move(path)) {}
  fs::path target_;
  fs::path path_;  // empty: nothing to remove
};

// One file open for writing at any place, by any thread.
class OutputFile {
 public:
  static Result<OutputFile> create(const fs::path& path) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) return fail(code_of(errno), "{}: cannot create: {}", path.string(), std::strerror(errno));
    return OutputFile(path, fd);
  }

  OutputFile(OutputFile&& other) noexcept
      : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
  OutputFile& operator=(OutputFile&&) = delete;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile() {
    if (fd_ >= 0) ::close(fd_);
  }

  [[nodiscard]] Result<void> write(std::int64_t offset, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ::ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0)
        return fail(code_of(errno), "{}: cannot write: {}", path_.string(), std::strerror(errno));
      bytes = bytes.subspan(static_cast<std::size_t>(written));
      offset += written;
    }
    return {};
  }

 private:
  OutputFile(fs::path path, int fd) : path_(std::move(path)), fd_(fd) {}
  fs::path path_;
  int fd_;
};

// A part of one tensor, and where it goes.
struct Chunk {
  const OutputFile* file;
  std::int64_t file_offset;
  SynthTensor tensor;
  std::int64_t tensor_offset;
  std::int64_t bytes;
};

// Keeps the first failure of several threads, and what `progress` is told.
class WriteStatus {
 public:
  WriteStatus(std::int64_t total, const SynthProgress& progress) : total_(total), progress_(progress) {}

  [[nodiscard]] bool stopped() const { return stop_; }

  void add(Result<void> written, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (stop_) return;
    done_ += bytes;
    if (written.ok() && progress_ && !progress_(done_, total_))
      written = fail(ErrorCode::kCancelled, "cancelled");
    if (written.ok()) return;
    result_ = std::move(written);
    stop_ = true;
  }

  Result<void> take() { return std::move(result_); }

 private:
  std::int64_t total_;
  const SynthProgress& progress_;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::int64_t done_ = 0;
  Result<void> result_;
};

Result<void> write_chunks(std::span<const Chunk> chunks, std::int64_t total, int threads,
                          const SynthProgress& progress) {
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

std::int64_t data_bytes(std::span<const ShardPlan> shards) {
  std::int64_t bytes = 0;
  for (const ShardPlan& shard : shards) {
    for (const TensorPlan& tensor : shard) bytes += tensor.bytes();
  }
  return bytes;
}

Result<void> check_room(const fs::path& directory, std::int64_t needed) {
  std::error_code error;
  const fs::space_info space = fs::space(directory, error);
  if (!error && space.available < static_cast<std::uintmax_t>(needed)) {
    return fail(ErrorCode::kExhausted, "{}: needs {:.1f} GB, the disk has {:.1f} GB left", directory.string(),
                static_cast<double>(needed) / 1e9, static_cast<double>(space.available) / 1e9);
  }
  return {};
}

Result<void> write_shards(const fs::path& directory, std::vector<ShardPlan>& shards,
                          const ModelConfig& config, const SynthOptions& options,
                          const SynthProgress& progress) {
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

Result<void> synthesize(const SynthOptions& options, const SynthProgress& progress) {
  LILY_TRY(const SynthPreset preset, find_synth_preset(options.preset));
  const std::string config_text = synth_config_json(preset, options.quantization);
  LILY_TRY(const ModelConfig config, parse_config(config_text));
  std::vector<ShardPlan> shards = cut_into_shards(published_layout(config), preset.omitted_bytes);

  LILY_TRY(PartialDirectory directory, PartialDirectory::create(options.out));
  LILY_TRY_VOID(check_room(directory.path(), data_bytes(shards)));
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
