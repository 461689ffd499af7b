#include "checkpoint/synth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/bf16.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/shards.h"
#include "checkpoint/synth_config.h"
#include "checkpoint/synth_values.h"
#include "tests/checkpoint/test_checkpoint.h"

namespace lily {
namespace {

using ::testing::HasSubstr;
using testing::read_bytes;
using testing::TempDir;

SynthOptions small(const std::filesystem::path& out) {
  SynthOptions options;
  options.out = out;
  options.preset = "small";
  options.threads = 2;
  return options;
}

std::vector<std::string> entries(const TempDir& dir) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path()))
    names.push_back(entry.path().filename());
  return names;
}

TEST(Synth, WritesACheckpointThatOpens) {
  const TempDir dir;
  ASSERT_TRUE(synthesize(small(dir.path() / "m")).ok());
  EXPECT_THAT(entries(dir), ::testing::ElementsAre("m"));
  const auto files = ModelFiles::open(dir.string() + "/m").value();
  EXPECT_THAT(files->names(), ::testing::ElementsAre("config.json", "generation_config.json",
                                                     shard_name(1, 1), "model.safetensors.index.json"));
  const auto checkpoint = Checkpoint::open(files);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->tensors().size(), 6U * 45 + 2 * 40 + 7);
}

TEST(Synth, BytesDependOnTheSeedAndNotOnTheThreads) {
  const TempDir dir;
  SynthOptions options = small(dir.path() / "a");
  ASSERT_TRUE(synthesize(options).ok());
  options.out = dir.path() / "b";
  options.threads = 1;
  ASSERT_TRUE(synthesize(options).ok());
  options.out = dir.path() / "c";
  options.seed = 1;
  ASSERT_TRUE(synthesize(options).ok());
  const std::string a = read_bytes(dir.path() / "a" / shard_name(1, 1));
  EXPECT_TRUE(a == read_bytes(dir.path() / "b" / shard_name(1, 1)));
  EXPECT_FALSE(a == read_bytes(dir.path() / "c" / shard_name(1, 1)));
}

// As MLX writes it: an unpadded header, data neither in name order nor aligned.
TEST(Synth, DataIsScattered) {
  const TempDir dir;
  ASSERT_TRUE(synthesize(small(dir.path() / "m")).ok());
  const std::string file = read_bytes(dir.path() / "m" / shard_name(1, 1));
  const auto views = parse_safetensors("m", std::as_bytes(std::span(file))).value();
  EXPECT_FALSE(std::ranges::is_sorted(views, {}, &TensorView::name));
  const auto data = reinterpret_cast<const char*>(views.front().data.data());
  EXPECT_EQ(data[-1], '}');
}

TEST(Synth, CopiesATokenizer) {
  const TempDir dir;
  SynthOptions options = small(dir.path() / "m");
  options.tokenizer_from = "tiny";
  const auto written = synthesize(options);
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_TRUE(read_bytes(dir.path() / "m" / "tokenizer.json") ==
              ModelFiles::open("tiny").value()->text("tokenizer.json").value());
}

TEST(Synth, CancellingLeavesNothingBehind) {
  const TempDir dir;
  std::int64_t seen = 0;
  const auto written = synthesize(small(dir.path() / "m"), [&](std::int64_t done, std::int64_t total) {
    EXPECT_GT(done, seen);
    EXPECT_LE(done, total);
    seen = done;
    return done < total / 2;
  });
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, ErrorCode::kCancelled);
  EXPECT_THAT(entries(dir), ::testing::IsEmpty());
}

TEST(Synth, NeverWritesOverAnything) {
  const TempDir dir;
  std::filesystem::create_directory(dir.path() / "m");
  testing::write_bytes(dir.path() / "m" / "thesis.txt", "x");
  EXPECT_EQ(synthesize(small(dir.path() / "m")).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(read_bytes(dir.path() / "m" / "thesis.txt"), "x");
  std::filesystem::create_directory(dir.path() / "n.partial");
  EXPECT_THAT(synthesize(small(dir.path() / "n")).error().message, HasSubstr("n.partial"));
  EXPECT_TRUE(std::filesystem::exists(dir.path() / "n.partial"));
  std::filesystem::create_directory(dir.path() / "empty");
  EXPECT_TRUE(synthesize(small(dir.path() / "empty/")).ok());
}

TEST(Synth, UnknownPresetListsTheKnownOnes) {
  const TempDir dir;
  SynthOptions options = small(dir.path() / "m");
  options.preset = "gpt";
  EXPECT_THAT(synthesize(options).error().message, HasSubstr("qwen3.6-35b-a3b, 35b-4layers, small"));
}

TEST(Synth, EveryPresetIsAValidConfig) {
  for (const SynthPreset& preset : synth_presets()) {
    const auto config = parse_config(synth_config_json(preset));
    ASSERT_TRUE(config.ok()) << preset.name << ": " << config.error().message;
    EXPECT_FALSE(config->eos_token_ids.empty()) << preset.name;
  }
}

class SynthValues : public ::testing::Test {
 protected:
  ModelConfig config_ = parse_config(synth_config_json(find_synth_preset("small").value())).value();

  [[nodiscard]] std::string bytes(const std::string& name) const {
    for (const TensorPlan& plan : published_layout(config_)) {
      if (plan.name != name) continue;
      std::string out(static_cast<std::size_t>(plan.bytes()), '\0');
      SynthTensor(plan, config_, 3).fill(0, std::as_writable_bytes(std::span(out)));
      return out;
    }
    ADD_FAILURE() << name;
    return {};
  }

  [[nodiscard]] std::vector<float> vector(const std::string& name) const {
    const std::string raw = bytes(testing::in_model(name));
    std::vector<float> values;
    for (std::size_t i = 0; i < raw.size(); i += 2)
      values.push_back(bf16_to_f32(load_unaligned<std::uint16_t>(&raw[i])));
    return values;
  }

  // Mean and standard deviation of a dequantized matrix.
  [[nodiscard]] std::pair<double, double> moments(const std::string& module, int bits) const {
    const std::string codes = bytes(module + ".weight");
    const std::string scales = bytes(module + ".scales");
    const std::string biases = bytes(module + ".biases");
    double sum = 0;
    double squares = 0;
    const std::size_t count = codes.size() * 8 / static_cast<std::size_t>(bits);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t group = i / 64 * 2;
      const auto byte = static_cast<unsigned char>(codes[i * static_cast<std::size_t>(bits) / 8]);
      const float code = static_cast<float>(bits == 8 ? byte : (i % 2 == 0 ? byte & 15U : byte >> 4U));
      const double w = bf16_to_f32(load_unaligned<std::uint16_t>(&scales[group])) * code +
                       bf16_to_f32(load_unaligned<std::uint16_t>(&biases[group]));
      sum += w;
      squares += w * w;
    }
    const double mean = sum / static_cast<double>(count);
    return {mean, std::sqrt(squares / static_cast<double>(count) - mean * mean)};
  }
};

TEST_F(SynthValues, AnyPartEqualsTheWhole) {
  for (const TensorPlan& plan : published_layout(config_)) {
    std::string whole(static_cast<std::size_t>(plan.bytes()), '\0');
    const SynthTensor tensor(plan, config_, 5);
    tensor.fill(0, std::as_writable_bytes(std::span(whole)));
    const std::size_t middle = whole.size() / 16 * 8;
    std::string rest(whole.size() - middle, '\0');
    tensor.fill(static_cast<std::int64_t>(middle), std::as_writable_bytes(std::span(rest)));
    EXPECT_TRUE(whole.substr(middle) == rest) << plan.name;
  }
}

TEST_F(SynthValues, MatricesHaveTheDeviationThatKeepsActivationsSane) {
  const double unit = 1 / std::sqrt(256.0);
  const std::tuple<std::string, int, double> expected[] = {
      {testing::in_model("layers.0.linear_attn.in_proj_qkv"), 4, unit},
      {testing::in_model("layers.0.mlp.gate"), 8, 2 * unit},
      {testing::in_model("layers.0.mlp.switch_mlp.gate_proj"), 4, unit},
      {testing::in_model("layers.0.mlp.switch_mlp.down_proj"), 4, 1 / std::sqrt(64.0) / 4},
      {testing::in_model("layers.3.self_attn.o_proj"), 4, 1 / std::sqrt(1024.0) / 4},
      {testing::in_model("embed_tokens"), 4, 1.0},
      {"language_model.lm_head", 4, 3 * unit}};
  for (const auto& [module, bits, deviation] : expected) {
    const auto [mean, found] = moments(module, bits);
    EXPECT_NEAR(found / deviation, 1, 0.05) << module;
    EXPECT_NEAR(mean / deviation, 0, 0.05) << module;
  }
}

TEST_F(SynthValues, SmallVectorsKeepTheirRanges) {
  for (const float v : vector("layers.0.linear_attn.A_log")) {
    EXPECT_GE(v, std::log(0.5F) - 0.01F);
    EXPECT_LE(v, std::log(16.0F) + 0.01F);
  }
  for (const float v : vector("layers.0.linear_attn.dt_bias")) {
    EXPECT_GE(v, -4.0F);
    EXPECT_LE(v, 1.0F);
  }
  double squares = 0;
  const auto conv = vector("layers.0.linear_attn.conv1d.weight");
  for (const float v : conv) squares += static_cast<double>(v) * v;
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(conv.size())), 0.5, 0.03);
  double sum = 0;
  const auto gain = vector("norm.weight");
  for (const float v : gain) sum += v;
  EXPECT_NEAR(sum / static_cast<double>(gain.size()), 1, 0.03);
}

}  // namespace
}  // namespace lily
