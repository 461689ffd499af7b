// The files of a model, by name: a directory on disk (mapped), or the model linked into the binary.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/embedded.h"
#include "base/mmap.h"
#include "base/result.h"
#include "checkpoint/truncation_watch.h"

namespace lily {

class ModelFiles {
  struct Private {};  // keeps the constructor to open()

 public:
  explicit ModelFiles(Private) {}

  /// `model` is "tiny" (the embedded model) or a checkpoint directory.
  static Result<std::shared_ptr<ModelFiles>> open(const std::string& model);

  /// The bytes of a file, valid as long as this object lives. kNotFound when there is none, kInvalidArgument
  /// for a name that is a path. Thread-safe. Reading what somebody has since cut off ends the process
  /// (truncation_watch.h).
  Result<std::span<const std::byte>> bytes(const std::string& name);
  Result<std::string_view> text(const std::string& name);
  [[nodiscard]] bool contains(const std::string& name) const;
  /// All file names, sorted.
  [[nodiscard]] std::vector<std::string> names() const;
  /// For messages: the directory, or "tiny".
  [[nodiscard]] const std::string& label() const { return label_; }
  /// "tiny", or the directory's last component: the name the model goes by.
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  std::string label_;
  std::string name_;
  std::filesystem::path directory_;  // empty for the embedded model
  std::mutex mutex_;
  struct Mapped {
    MappedFile file;
    TruncationWatch watch;
  };
  std::map<std::string, Mapped> mapped_;
};

/// The files of models/tiny, linked into the binary.
std::span<const EmbeddedFile> embedded_model();

}  // namespace lily
