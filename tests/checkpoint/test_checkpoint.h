// A small, well-formed checkpoint in memory, for tests to damage and write to disk.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/layout.h"

namespace lily::testing {

/// A directory of its own, removed with everything in it.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::string string() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

void write_bytes(const std::filesystem::path& path, std::string_view bytes);
std::string read_bytes(const std::filesystem::path& path);

/// Length prefix, header text, data.
std::string safetensors_bytes(std::string_view header, std::string_view data);

struct TestTensor {
  TensorPlan plan;
  std::string bytes;
};

/// Four layers (three gated delta, one attention), 8 experts of which 2 are used, hidden 64, in three shards
/// with a weight/scales/biases triple across two of them.
class TestCheckpoint {
 public:
  explicit TestCheckpoint(std::int64_t vocab_size = 96, std::int64_t max_position_embeddings = 1024);

  nlohmann::json config;                        ///< of config.json
  std::vector<std::vector<TestTensor>> shards;  ///< in file order
  bool with_index = true;
  std::map<std::string, std::string> index_edits;  ///< tensor to file, or to "" to leave it out

  /// The tensor of that name; there must be one.
  TestTensor& tensor(const std::string& name);
  void remove(const std::string& name);
  /// A tensor of zeros at the end of the last shard.
  void add(const std::string& name, DType dtype, std::vector<std::int64_t> shape);
  /// Gives a tensor another shape and dtype; its bytes are zeros.
  void reshape(const std::string& name, DType dtype, std::vector<std::int64_t> shape);

  [[nodiscard]] std::string shard_file(std::size_t shard) const;  ///< counted from 0
  void write(const std::filesystem::path& directory) const;

 private:
  [[nodiscard]] nlohmann::json index() const;
};

/// The name of a text tensor: "layers.0.input_layernorm.weight" with the published prefix.
std::string in_model(std::string_view name);

}  // namespace lily::testing
