// Resumption, cancelling and the cut into shards; what the bytes are, tests/cli/quantize_test.py checks.
#include "checkpoint/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>

#include "base/bf16.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/shards.h"
#include "checkpoint/synth_config.h"
#include "tests/checkpoint/test_checkpoint.h"

namespace lily {
namespace {

using ::testing::HasSubstr;
using testing::read_bytes;
using testing::TempDir;
using testing::write_bytes;

namespace fs = std::filesystem;

std::string original_name(std::string name) {
  const std::string converted = "language_model.model.";
  if (name.starts_with(converted)) name.replace(0, converted.size(), "model.language_model.");
  return name;
}

// The small dense preset as its publisher would have made it.
void write_original(const fs::path& directory) {
  const std::string text = synth_config_json(find_synth_preset("small-dense").value());
  const ModelConfig config = parse_config(text).value();
  auto json = nlohmann::json::parse(text);
  json.erase("quantization");
  json.erase("quantization_config");
  fs::create_directories(directory);
  write_bytes(directory / "config.json", json.dump());
  std::mt19937 random(3);
  std::vector<TensorPlan> plans;
  std::string data;
  for (TensorPlan plan : published_layout(config)) {
    if (plan.name.ends_with(".scales") || plan.name.ends_with(".biases")) continue;
    if (plan.dtype == DType::kU32) plan.shape.back() *= 8;
    plan.dtype = DType::kBF16;
    if (plan.name.ends_with("conv1d.weight")) std::swap(plan.shape[1], plan.shape[2]);
    plan.name = original_name(plan.name);
    for (std::int64_t i = 0; i < plan.bytes() / 2; ++i) {
      const std::uint16_t bits = f32_to_bf16(static_cast<float>(random() % 1000) / 1000 - 0.5F);
      data.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
    }
    plans.push_back(std::move(plan));
  }
  write_bytes(directory / "model.safetensors", safetensors_header(plans) + data);
}

class QuantizeRun : public ::testing::Test {
 protected:
  QuantizeRun() { write_original(dir_.path() / "hf"); }

  [[nodiscard]] QuantizeOptions options(std::int64_t shard_bytes = 200'000) const {
    return {.source = dir_.string() + "/hf",
            .out = dir_.path() / "out",
            .quantization = {},
            .rules = {},
            .threads = 2,
            .shard_bytes = shard_bytes};
  }
  [[nodiscard]] fs::path out() const { return dir_.path() / "out"; }
  [[nodiscard]] fs::path partial() const { return dir_.path() / "out.partial"; }

  /// Stops after about so many bytes.
  [[nodiscard]] Result<void> stop_after(std::int64_t bytes) const {
    return quantize(options(), [=](std::int64_t done, std::int64_t) { return done < bytes; });
  }
  /// The finished shards of the partial directory, with what tells a file from its replacement.
  [[nodiscard]] std::map<std::string, ::ino_t> finished() const {
    std::map<std::string, ::ino_t> files;
    for (const auto& entry : fs::directory_iterator(partial())) {
      struct ::stat status{};
      ::stat(entry.path().c_str(), &status);
      if (entry.path().extension() == ".safetensors") files[entry.path().filename()] = status.st_ino;
    }
    return files;
  }

  TempDir dir_;
};

TEST_F(QuantizeRun, AnInterruptedRunGoesOnAfterTheLastFinishedShard) {
  const auto stopped = stop_after(900'000);
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  EXPECT_FALSE(fs::exists(out()));
  EXPECT_FALSE(fs::exists(partial() / "config.json"));
  const auto before = finished();
  ASSERT_GE(before.size(), 2U);

  std::int64_t first = -1;
  std::int64_t last = -1;
  const auto done = quantize(options(), [&](std::int64_t bytes, std::int64_t total) {
    if (first < 0) first = bytes;
    last = total - bytes;
    return true;
  });
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_GT(first, 100'000) << "the first finished shard was written again";
  EXPECT_EQ(last, 0);
  EXPECT_FALSE(fs::exists(partial()));
  for (const auto& [name, inode] : before) {
    struct ::stat status{};
    ASSERT_EQ(::stat((out() / name).c_str(), &status), 0);
    EXPECT_EQ(status.st_ino, inode) << name;
  }

  // The same bytes as in one go, whatever the cut.
  QuantizeOptions whole = options(std::int64_t{5} << 30U);
  whole.out = dir_.path() / "whole";
  ASSERT_TRUE(quantize(whole).ok());
  const auto resumed = Checkpoint::open(ModelFiles::open(out().string()).value()).value();
  const auto straight = Checkpoint::open(ModelFiles::open(whole.out.string()).value()).value();
  ASSERT_EQ(resumed.tensors().size(), straight.tensors().size());
  for (const auto& [name, tensor] : straight.tensors()) {
    EXPECT_TRUE(std::ranges::equal(resumed.tensors().at(name).data, tensor.data)) << name;
  }
}

TEST_F(QuantizeRun, OtherOptionsOrAnotherSourceDoNotGoOn) {
  ASSERT_FALSE(stop_after(500'000).ok());
  QuantizeOptions other = options();
  other.rules = {{.pattern = "lm_head", .spec = {.bits = 8}}};
  EXPECT_THAT(quantize(other).error().message, HasSubstr("other options: remove it"));
  fs::last_write_time(dir_.path() / "hf" / "model.safetensors", fs::file_time_type::clock::now());
  EXPECT_THAT(quantize(options()).error().message, HasSubstr("another source or other options"));
}

TEST_F(QuantizeRun, NeverWritesOverAnything) {
  fs::create_directories(out());
  write_bytes(out() / "mine", "x");
  EXPECT_THAT(quantize(options()).error().message, HasSubstr("expected a new directory"));
  EXPECT_EQ(read_bytes(out() / "mine"), "x");
}

TEST(QuantizeRules, AreReadInOrder) {
  const QuantizationSpec defaults{.bits = 4, .group_size = 128};
  const auto rules = parse_quantize_rules("v_proj=6,layers.[0-3].*=8:32", defaults);
  ASSERT_TRUE(rules.ok());
  ASSERT_EQ(rules->size(), 2U);
  EXPECT_EQ(rules->at(0).pattern, "v_proj");
  EXPECT_EQ(rules->at(0).spec, (QuantizationSpec{.bits = 6, .group_size = 128}));
  EXPECT_EQ(rules->at(1).spec, (QuantizationSpec{.bits = 8, .group_size = 32}));
  EXPECT_TRUE(parse_quantize_rules("", defaults)->empty());
  for (const char* bad : {"a", "=4", "a=", "a=7", "a=4:", "a=4:16", "a=4x", "a=4,,b=4"}) {
    EXPECT_FALSE(parse_quantize_rules(bad, defaults).ok()) << bad;
  }
}

}  // namespace
}  // namespace lily
