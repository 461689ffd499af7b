#include "checkpoint/model_files.h"

#include <algorithm>
#include <system_error>

#include "checkpoint/report.h"

namespace lily {
namespace {

constexpr std::string_view kEmbeddedName = "tiny";

// Files of a model lie side by side; a name that could lead elsewhere comes from a hostile index.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\\') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

const EmbeddedFile* find_embedded(std::string_view name) {
  const auto files = embedded_model();
  const auto found = std::ranges::find(files, name, &EmbeddedFile::name);
  return found != files.end() ? &*found : nullptr;
}

std::string directory_name(const std::filesystem::path& directory) {
  std::error_code error;
  const auto full = std::filesystem::weakly_canonical(directory, error);
  return (error ? directory : full).filename().string();
}

}  // namespace

Result<std::shared_ptr<ModelFiles>> ModelFiles::open(const std::string& model) {
  auto files = std::make_shared<ModelFiles>(Private{});
  files->label_ = model;
  if (model == kEmbeddedName) {
    files->name_ = model;
    return files;
  }
  std::error_code error;
  const auto status = std::filesystem::status(model, error);
  if (!std::filesystem::exists(status)) {
    return fail(ErrorCode::kNotFound, "{}: no such directory, expected a checkpoint directory or \"{}\"",
                model, kEmbeddedName);
  }
  if (!std::filesystem::is_directory(status)) {
    return fail(ErrorCode::kInvalidArgument, "{}: not a directory, expected a checkpoint directory", model);
  }
  files->directory_ = model;
  files->name_ = directory_name(files->directory_);
  return files;
}

Result<std::span<const std::byte>> ModelFiles::bytes(const std::string& name) {
  if (!is_plain_name(name)) {
    return fail(ErrorCode::kInvalidArgument, "{}: \"{}\" is not the name of a file beside it", label_,
                printable(name));
  }
  if (directory_.empty()) {
    if (const EmbeddedFile* file = find_embedded(name)) return file->bytes;
    return fail(ErrorCode::kNotFound, "{}: has no {}", label_, printable(name));
  }
  const std::lock_guard lock(mutex_);
  if (const auto known = mapped_.find(name); known != mapped_.end()) return known->second.file.bytes();
  const std::filesystem::path path = directory_ / name;
  LILY_TRY(MappedFile file, MappedFile::open(path));
  TruncationWatch watch(path, file.bytes());
  return mapped_.emplace(name, Mapped{std::move(file), std::move(watch)}).first->second.file.bytes();
}

Result<std::string_view> ModelFiles::text(const std::string& name) {
  LILY_TRY(const auto content, bytes(name));
  return std::string_view(reinterpret_cast<const char*>(content.data()), content.size());
}

bool ModelFiles::contains(const std::string& name) const {
  if (!is_plain_name(name)) return false;
  if (directory_.empty()) return find_embedded(name) != nullptr;
  std::error_code error;
  return std::filesystem::is_regular_file(directory_ / name, error);
}

std::vector<std::string> ModelFiles::names() const {
  std::vector<std::string> names;
  if (directory_.empty()) {
    for (const EmbeddedFile& file : embedded_model()) names.emplace_back(file.name);
  } else {
    std::error_code error;
    for (std::filesystem::directory_iterator entry(directory_, error), end; !error && entry != end;
         entry.increment(error)) {
      std::error_code ignored;
      if (entry->is_regular_file(ignored)) names.push_back(entry->path().filename().string());
    }
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace lily
