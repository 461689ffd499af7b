#include "checkpoint/checkpoint.h"

#include "base/log.h"
#include "checkpoint/report.h"
#include "checkpoint/shards.h"

namespace lily {
namespace {

using Tensors = std::map<std::string, TensorView, std::less<>>;
using Home = std::map<std::string, std::string, std::less<>>;  // tensor to the file that holds it

struct Contents {
  Tensors tensors;
  Home home;
};

// Adds one shard's tensors.
Result<void> read_shard(ModelFiles& files, const std::string& file, Contents& contents) {
  LILY_TRY(const auto bytes, files.bytes(file));
  LILY_TRY(auto views, parse_safetensors(file, bytes));
  for (TensorView& view : views) {
    const auto [place, fresh] = contents.home.emplace(view.name, file);
    if (!fresh) {
      return fail(ErrorCode::kCorrupt, "{}: also holds {}, which {} holds", file, printable(view.name),
                  place->second);
    }
    contents.tensors.emplace(view.name, std::move(view));
  }
  return {};
}

Contents read_shards(ModelFiles& files, const ShardList& shards, std::vector<Error>& problems) {
  Contents contents;
  std::vector<std::string> missing;
  for (const std::string& file : shards.files) {
    if (!files.contains(file)) {
      missing.push_back(file);
      continue;
    }
    if (auto read = read_shard(files, file, contents); !read.ok())
      problems.push_back(std::move(read).error());
  }
  if (!missing.empty()) {
    problems.push_back(fail(ErrorCode::kNotFound, "{} of {} shards are missing: {}", missing.size(),
                            shards.files.size(), list_names(missing)));
  }
  return contents;
}

// The index against the headers: every entry must be true. Says nothing about shards that could not be read.
void check_index(const ShardList& shards, const Home& home, std::vector<Error>& problems) {
  std::vector<std::string> misplaced;
  for (const auto& [tensor, file] : shards.weight_map) {
    const auto found = home.find(tensor);
    if (found == home.end()) {
      misplaced.push_back(fmt::format("{} is not in {}", printable(tensor), file));
    } else if (found->second != file) {
      misplaced.push_back(fmt::format("{} is in {}, not in {}", printable(tensor), found->second, file));
    }
  }
  if (!misplaced.empty()) {
    problems.push_back(fail(ErrorCode::kCorrupt, "the shard index is wrong: {}", list_names(misplaced)));
  }
}

// The headers against the index. A tensor that is there can be used, so this is worth a warning and no more.
void warn_of_unlisted(const ShardList& shards, const Home& home, const std::string& label) {
  if (shards.weight_map.empty()) return;
  std::vector<std::string> unlisted;
  for (const auto& [tensor, file] : home) {
    if (!shards.weight_map.contains(tensor)) unlisted.push_back(tensor);
  }
  if (!unlisted.empty()) {
    log::warn("{}: the shard index leaves out {} tensors of its shards: {}", label, unlisted.size(),
              list_names(unlisted));
  }
}

Result<ModelConfig> read_config_file(ModelFiles& files) {
  LILY_TRY(const std::string_view text, files.text("config.json"));
  auto config = parse_config(text);
  if (!config.ok()) return std::move(config).error().in("config.json").in(files.label());
  return config;
}

}  // namespace

Result<Checkpoint> Checkpoint::open_collecting(std::shared_ptr<ModelFiles> files,
                                               std::vector<Error>& problems) {
  Checkpoint checkpoint;
  checkpoint.files_ = std::move(files);
  LILY_TRY(checkpoint.config_, read_config_file(*checkpoint.files_));
  auto shards = list_shards(*checkpoint.files_);
  if (!shards.ok()) {
    problems.push_back(std::move(shards).error());
    return checkpoint;
  }
  const std::size_t before = problems.size();
  Contents contents = read_shards(*checkpoint.files_, *shards, problems);
  // After a shard that could not be read, what it lacks is no news.
  if (problems.size() == before) check_index(*shards, contents.home, problems);
  warn_of_unlisted(*shards, contents.home, checkpoint.files_->label());
  checkpoint.tensors_ = std::move(contents.tensors);
  return checkpoint;
}

Result<Checkpoint> Checkpoint::open(std::shared_ptr<ModelFiles> files) {
  std::vector<Error> problems;
  const std::string label = files->label();
  LILY_TRY(Checkpoint checkpoint, open_collecting(std::move(files), problems));
  if (!problems.empty()) return combine(problems).in(label);
  return checkpoint;
}

Result<TensorView> Checkpoint::take(std::string_view name) {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return fail(ErrorCode::kNotFound, "{}: no such tensor", printable(name));
  taken_.emplace(name);
  return found->second;
}

bool Checkpoint::contains(std::string_view name) const {
  return tensors_.find(name) != tensors_.end();
}

Result<void> Checkpoint::check_all_taken() const {
  std::vector<std::string> unknown;
  std::size_t skipped = 0;
  for (const auto& [name, view] : tensors_) {
    if (taken_.contains(name)) continue;
    if (is_unused_family(name)) {
      ++skipped;
    } else {
      unknown.push_back(name);
    }
  }
  if (skipped != 0) log::info("{}: skipped {} vision and MTP tensors", files_->label(), skipped);
  if (unknown.empty()) return {};
  return fail(ErrorCode::kUnsupported, "{} tensors that this model has no place for: {}", unknown.size(),
              list_names(unknown));
}

bool is_unused_family(std::string_view tensor_name) {
  for (const std::string_view prefix : {"language_model.", "model."}) {
    if (tensor_name.starts_with(prefix)) tensor_name.remove_prefix(prefix.size());
  }
  return tensor_name.starts_with("vision_tower.") || tensor_name.starts_with("visual.") ||
         tensor_name.starts_with("mtp.");
}

}  // namespace lily
