#include "tests/checkpoint/test_checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <iterator>

#include "checkpoint/shards.h"
#include "checkpoint/synth_config.h"
#include "checkpoint/synth_values.h"

namespace lily::testing {
namespace {

namespace fs = std::filesystem;

constexpr SynthPreset kShape = {.name = "test",
                                .description = "the smallest that has every kind of tensor",
                                .vocab_size = 0,
                                .hidden_size = 64,
                                .num_hidden_layers = 4,
                                .num_attention_heads = 2,
                                .num_key_value_heads = 1,
                                .linear_num_key_heads = 1,
                                .linear_num_value_heads = 2,
                                .num_experts = 8,
                                .num_experts_per_tok = 2,
                                .moe_intermediate_size = 64,
                                .max_position_embeddings = 0};

TestTensor make_tensor(const TensorPlan& plan, const ModelConfig& parsed) {
  TestTensor tensor{plan, std::string(static_cast<std::size_t>(plan.bytes()), '\0')};
  SynthTensor(plan, parsed, 7).fill(0, std::as_writable_bytes(std::span(tensor.bytes)));
  return tensor;
}

}  // namespace

TempDir::TempDir() {
  static std::atomic<int> count = 0;
  path_ = fs::temp_directory_path() / fmt::format("lily-test-{}-{}", ::getpid(), count++);
  fs::create_directories(path_);
}

TempDir::~TempDir() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void write_bytes(const fs::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), std::ssize(bytes));
  LILY_CHECK(file.good(), "cannot write {}", path.string());
}

std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  LILY_CHECK(file.good(), "cannot read {}", path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string safetensors_bytes(std::string_view header, std::string_view data) {
  const std::uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  return bytes.append(header).append(data);
}

TestCheckpoint::TestCheckpoint(std::int64_t vocab_size, std::int64_t max_position_embeddings) {
  SynthPreset shape = kShape;
  shape.vocab_size = vocab_size;
  shape.max_position_embeddings = max_position_embeddings;
  const std::string text = synth_config_json(shape);
  config = nlohmann::json::parse(text);
  const auto parsed = parse_config(text);
  LILY_CHECK(parsed.ok(), "{}", parsed.error().message);
  const auto plans = published_layout(*parsed);
  const std::size_t third = plans.size() / 3;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (i % third == 0 && shards.size() < 3) shards.emplace_back();
    shards.back().push_back(make_tensor(plans[i], *parsed));
  }
}

TestTensor& TestCheckpoint::tensor(const std::string& name) {
  for (auto& shard : shards) {
    for (TestTensor& tensor : shard) {
      if (tensor.plan.name == name) return tensor;
    }
  }
  LILY_CHECK(false, "no tensor {}", name);
}

void TestCheckpoint::remove(const std::string& name) {
  (void)tensor(name);
  for (auto& shard : shards)
    std::erase_if(shard, [&](const TestTensor& tensor) { return tensor.plan.name == name; });
}

void TestCheckpoint::add(const std::string& name, DType dtype, std::vector<std::int64_t> shape) {
  shards.back().push_back({{name, dtype, std::move(shape)}, {}});
  shards.back().back().bytes.assign(static_cast<std::size_t>(shards.back().back().plan.bytes()), '\0');
}

void TestCheckpoint::reshape(const std::string& name, DType dtype, std::vector<std::int64_t> shape) {
  TestTensor& changed = tensor(name);
  changed.plan = {name, dtype, std::move(shape)};
  changed.bytes.assign(static_cast<std::size_t>(changed.plan.bytes()), '\0');
}

std::string TestCheckpoint::shard_file(std::size_t shard) const {
  return shards.size() == 1 && !with_index ? "model.safetensors" : shard_name(shard + 1, shards.size());
}

nlohmann::json TestCheckpoint::index() const {
  nlohmann::json weight_map;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    for (const TestTensor& tensor : shards[i]) weight_map[tensor.plan.name] = shard_file(i);
  }
  for (const auto& [name, file] : index_edits) {
    if (file.empty()) {
      weight_map.erase(name);
    } else {
      weight_map[name] = file;
    }
  }
  return {{"metadata", {{"total_size", 1}}}, {"weight_map", weight_map}};
}

void TestCheckpoint::write(const fs::path& directory) const {
  write_bytes(directory / "config.json", config.dump());
  if (with_index) write_bytes(directory / "model.safetensors.index.json", index().dump());
  for (std::size_t i = 0; i < shards.size(); ++i) {
    std::vector<TensorPlan> plans;
    std::string data;
    for (const TestTensor& tensor : shards[i]) {
      plans.push_back(tensor.plan);
      data += tensor.bytes;
    }
    write_bytes(directory / shard_file(i), safetensors_header(plans) + data);
  }
}

std::string in_model(std::string_view name) {
  return "language_model.model." + std::string(name);
}

}  // namespace lily::testing
