#include "hub/pull.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "checkpoint/report.h"
#include "hub/blob.h"
#include "hub/http.h"
#include "hub/repository.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

/// A blob that several threads fill.
struct Transfer {
  Transfer(PartialBlob partial, std::string from) : blob(std::move(partial)), url(std::move(from)) {}
  PartialBlob blob;
  std::string url;
  std::mutex mutex;  ///< of the blob's journal
};

struct Chunk {
  Transfer* transfer;
  std::int64_t number;
};

bool is_there(const fs::path& blob, const RepositoryFile& file) {
  std::error_code error;
  const auto size = fs::file_size(blob, error);
  return !error && size == static_cast<std::uintmax_t>(file.size);
}

// "refs/pr/1" is a name too; what would leave the directory of refs is not.
Result<void> check_revision(const std::string& revision) {
  const fs::path path(revision);
  const bool leaves = path.is_absolute() || std::ranges::any_of(path, [](const fs::path& part) {
                        return part == ".." || part == "." || part.empty();
                      });
  if (!revision.empty() && !leaves && printable(revision) == revision) return {};
  return fail(ErrorCode::kInvalidArgument, "revision: expected a branch, tag or commit, found '{}'",
              printable(revision));
}

class Pull {
 public:
  Pull(const PullOptions& options, const WriteProgress& progress)
      : options_(options), progress_(progress), cache_(options.hub.cache, options.repository) {}

  Result<fs::path> run() {
    HttpClient http({.token = options_.hub.token, .stop = nullptr});
    LILY_TRY(repository_,
             find_repository(http, options_.hub.endpoint, options_.repository, options_.revision));
    LILY_TRY_VOID(cache_.create());
    LILY_TRY_VOID(open_transfers());
    LILY_TRY_VOID(check_room());
    LILY_TRY_VOID(fetch());
    std::map<std::string, std::string> names;
    for (const RepositoryFile& file : repository_.files) names[file.name] = file.id;
    LILY_TRY_VOID(cache_.link(repository_.commit, names));
    if (options_.revision != repository_.commit) {
      LILY_TRY_VOID(cache_.set_ref(options_.revision, repository_.commit));
    }
    return cache_.snapshot(repository_.commit);
  }

 private:
  Result<void> open_transfers() {
    std::map<std::string, bool> seen;  // two names may share a blob
    for (const RepositoryFile& file : repository_.files) {
      total_ += file.size;
      const fs::path target = cache_.blob(file.id);
      if (is_there(target, file) || !seen.emplace(file.id, true).second) {
        there_ += file.size;
        continue;
      }
      LILY_TRY(PartialBlob blob, PartialBlob::open(target, file));
      transfers_.emplace_back(std::move(blob), file_url(options_.hub.endpoint, options_.repository,
                                                        repository_.commit, file.name));
      Transfer& transfer = transfers_.back();
      std::int64_t missing = 0;
      for (const std::int64_t chunk : transfer.blob.missing()) {
        chunks_.push_back({&transfer, chunk});
        missing += transfer.blob.chunk_end(chunk) - transfer.blob.chunk_begin(chunk);
      }
      // All of it had arrived, or it is empty: only its end is missing.
      if (missing == 0) LILY_TRY_VOID(transfer.blob.finish());
      there_ += file.size - missing;
    }
    return {};
  }

  // Files are laid out at their full size but take no room before they are written.
  [[nodiscard]] Result<void> check_room() const {
    std::error_code error;
    const fs::space_info space = fs::space(cache_.path(), error);
    const std::int64_t needed = total_ - there_;
    if (error || space.available >= static_cast<std::uintmax_t>(needed)) return {};
    return fail(ErrorCode::kExhausted, "{}: needs {:.1f} GB, the disk has {:.1f} GB left",
                cache_.path().string(), static_cast<double>(needed) / 1e9,
                static_cast<double>(space.available) / 1e9);
  }

  Result<void> fetch() {
    WriteStatus status(total_, progress_);
    status.add({}, there_);
    std::vector<std::thread> threads;
    const auto count = std::min<std::size_t>(static_cast<std::size_t>(options_.connections), chunks_.size());
    std::atomic<std::size_t> running = count;
    for (std::size_t i = 0; i < count; ++i) {
      threads.emplace_back([&] {
        fetch_chunks(status);
        --running;
      });
    }
    // Asks whether to go on, also while every connection is silent.
    for (; running > 0; std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
      status.add({}, 0);
      if (status.stopped()) stop_ = true;
    }
    for (std::thread& thread : threads) thread.join();
    return status.take();
  }

  // Until none is left or one thread has failed.
  void fetch_chunks(WriteStatus& status) {
    HttpClient http({.token = options_.hub.token, .stop = &stop_});
    for (std::size_t i = next_++; i < chunks_.size() && !status.stopped(); i = next_++) {
      auto fetched = fetch_chunk(http, chunks_[i], status);
      if (!fetched.ok()) status.add(std::move(fetched), 0);
    }
  }

  Result<void> fetch_chunk(HttpClient& http, const Chunk& chunk, WriteStatus& status) {
    Transfer& transfer = *chunk.transfer;
    const HttpRange range{.url = transfer.url,
                          .begin = transfer.blob.chunk_begin(chunk.number),
                          .end = transfer.blob.chunk_end(chunk.number),
                          .total = transfer.blob.file().size};
    const auto sink = [&](std::int64_t offset, std::span<const std::byte> bytes) -> Result<void> {
      LILY_TRY_VOID(transfer.blob.write(offset, bytes));
      status.add({}, std::ssize(bytes));
      return {};
    };
    auto got = http.get_range(range, sink);
    if (!got.ok()) return std::move(got).error();
    const std::lock_guard lock(transfer.mutex);
    LILY_TRY(const bool complete, transfer.blob.arrived(chunk.number));
    if (complete) return transfer.blob.finish();
    return {};
  }

  const PullOptions& options_;
  const WriteProgress& progress_;
  RepositoryCache cache_;
  Repository repository_;
  std::deque<Transfer> transfers_;
  std::vector<Chunk> chunks_;
  std::int64_t total_ = 0;
  std::int64_t there_ = 0;  ///< at the start
  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> stop_ = false;
};

}  // namespace

Result<fs::path> pull(const PullOptions& options, const WriteProgress& progress) {
  LILY_TRY_VOID(check_repository_name(options.repository));
  LILY_TRY_VOID(check_revision(options.revision));
  return Pull(options, progress).run();
}

}  // namespace lily
