#include "model/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/bf16.h"
#include "checkpoint/shards.h"
#include "checkpoint/synth.h"
#include "checkpoint/synth_config.h"
#include "tests/checkpoint/test_checkpoint.h"

namespace lily {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::in_model;
using ::testing::Not;
using testing::TempDir;
using testing::TestCheckpoint;

const std::string kHead = "language_model.lm_head";
const std::string kRouter = in_model("layers.0.mlp.gate");
const std::string kUp = in_model("layers.2.mlp.switch_mlp.up_proj");

Result<ModelWeights> load(const std::string& path) {
  LILY_TRY(const auto files, ModelFiles::open(path));
  LILY_TRY(Checkpoint checkpoint, Checkpoint::open(files));
  return load_weights(checkpoint);
}

Result<ModelWeights> load(const TestCheckpoint& checkpoint) {
  const TempDir dir;
  checkpoint.write(dir.path());
  return load(dir.string());  // mapped files outlive their names
}

const RecurrentWeights& recurrent(const ModelWeights& weights, std::size_t layer) {
  return std::get<RecurrentWeights>(weights.layers[layer].mixer);
}

const MoeWeights& moe(const ModelWeights& weights, std::size_t layer) {
  return std::get<MoeWeights>(weights.layers[layer].mlp);
}

std::vector<float> floats(const testing::TestTensor& tensor) {
  std::vector<float> values;
  for (std::size_t i = 0; i < tensor.bytes.size(); i += 2) {
    values.push_back(bf16_to_f32(load_unaligned<std::uint16_t>(&tensor.bytes[i])));
  }
  return values;
}

std::string bytes_of(const std::byte* data, std::int64_t size) {
  return {reinterpret_cast<const char*>(data), static_cast<std::size_t>(size)};
}

TEST(Weights, EveryFieldIsItsTensor) {
  TestCheckpoint made;
  const auto weights = load(made);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  ASSERT_EQ(weights->layers.size(), 4U);
  EXPECT_EQ(weights->norm, floats(made.tensor(in_model("norm.weight"))));

  const RecurrentWeights& mixer = recurrent(*weights, 1);
  EXPECT_EQ(mixer.input_layernorm, floats(made.tensor(in_model("layers.1.input_layernorm.weight"))));
  EXPECT_EQ(mixer.conv1d, floats(made.tensor(in_model("layers.1.linear_attn.conv1d.weight"))));
  EXPECT_EQ(mixer.A_log, floats(made.tensor(in_model("layers.1.linear_attn.A_log"))));
  EXPECT_EQ(mixer.dt_bias, floats(made.tensor(in_model("layers.1.linear_attn.dt_bias"))));
  EXPECT_EQ(mixer.norm, floats(made.tensor(in_model("layers.1.linear_attn.norm.weight"))));

  const auto& attention = std::get<AttentionWeights>(weights->layers[3].mixer);
  EXPECT_EQ(attention.q_norm, floats(made.tensor(in_model("layers.3.self_attn.q_norm.weight"))));
  EXPECT_EQ(attention.k_norm, floats(made.tensor(in_model("layers.3.self_attn.k_norm.weight"))));
  EXPECT_EQ(attention.q_proj.out, 2 * 2 * kHeadDim);

  const QuantizedMatrix& down = moe(*weights, 2).down_proj;
  const std::string module = in_model("layers.2.mlp.switch_mlp.down_proj");
  EXPECT_EQ(down.experts, 8);
  EXPECT_EQ(down.out, 64);
  EXPECT_EQ(down.in, 64);
  EXPECT_EQ(bytes_of(down.weight, 8 * 64 * down.row_bytes()), made.tensor(module + ".weight").bytes);
  EXPECT_EQ(bytes_of(down.scales, 8 * 64 * 2 * down.groups()), made.tensor(module + ".scales").bytes);
  EXPECT_EQ(bytes_of(down.biases, 8 * 64 * 2 * down.groups()), made.tensor(module + ".biases").bytes);
  EXPECT_EQ(moe(*weights, 2).gate.bits, 8);
  EXPECT_EQ(weights->lm_head.out, 96);
  EXPECT_NE(weights->lm_head.weight, weights->embed_tokens.weight);
}

// B132: the same values whatever precedes them in the file.
TEST(Weights, AlignmentDoesNotMatter) {
  TestCheckpoint made;
  const auto aligned = load(made);
  ASSERT_TRUE(aligned.ok());
  for (std::size_t i = 0; i < made.shards.size(); ++i) {
    made.shards[i].insert(made.shards[i].begin(), {{fmt::format("mtp.odd{}", i), DType::kU8, {3}}, "xyz"});
  }
  const auto odd = load(made);
  ASSERT_TRUE(odd.ok()) << odd.error().message;
  EXPECT_EQ(recurrent(*odd, 0).conv1d, recurrent(*aligned, 0).conv1d);
  EXPECT_EQ(bytes_of(odd->lm_head.weight, 96 * 32), bytes_of(aligned->lm_head.weight, 96 * 32));
}

// B122: an MTP head is no sign of the original layout, whose norms lack the 1.
TEST(Weights, MtpAndVisionTensorsChangeNothing) {
  TestCheckpoint made;
  const auto plain = load(made);
  ASSERT_TRUE(plain.ok());
  made.add("mtp.norm.weight", DType::kBF16, {64});
  made.add("language_model.mtp.fc.weight", DType::kBF16, {64, 128});
  made.add("mtp.layers.0.linear_attn.conv1d.weight", DType::kBF16, {512, 1, 4});
  made.add("vision_tower.patch_embed.proj.weight", DType::kBF16, {8, 2, 2, 2, 3});
  const auto more = load(made);
  ASSERT_TRUE(more.ok()) << more.error().message;
  EXPECT_EQ(more->norm, plain->norm);
  for (std::size_t layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(recurrent(*more, layer).input_layernorm, recurrent(*plain, layer).input_layernorm);
    EXPECT_EQ(recurrent(*more, layer).norm, recurrent(*plain, layer).norm);
    EXPECT_EQ(moe(*more, layer).post_attention_layernorm, moe(*plain, layer).post_attention_layernorm);
  }
}

// B122: where the original layout is meant, the convolution says so.
TEST(Weights, OriginalLayoutIsRefusedByName) {
  TestCheckpoint raw_conv;
  raw_conv.reshape(in_model("layers.0.linear_attn.conv1d.weight"), DType::kBF16, {512, 1, 4});
  EXPECT_THAT(load(raw_conv).error().message, HasSubstr("conv1d [C, 1, 4]"));

  TestCheckpoint names;
  names.add("model.language_model.norm.weight", DType::kBF16, {64});
  EXPECT_THAT(load(names).error().message, HasSubstr("original tensors"));

  TestCheckpoint unquantized;
  unquantized.config.erase("quantization");
  unquantized.config.erase("quantization_config");
  EXPECT_THAT(load(unquantized).error().message, HasSubstr("quantization: missing"));
}

// B124
TEST(Weights, BitsAreWhatTheTensorHolds) {
  TestCheckpoint says_8;
  says_8.config["quantization"][kUp] = {{"bits", 8}};
  EXPECT_THAT(load(says_8).error().message,
              HasSubstr(kUp + ".weight: U32 [8, 64, 8] holds 4 bits a weight, config.json says 8"));

  TestCheckpoint says_4;
  says_4.config["quantization"].erase(kRouter);
  EXPECT_THAT(load(says_4).error().message,
              HasSubstr(kRouter + ".weight: U32 [8, 16] holds 8 bits a weight, config.json says 4"));

  TestCheckpoint holds_8;
  holds_8.config["quantization"][kUp] = {{"bits", 8}};
  holds_8.reshape(kUp + ".weight", DType::kU32, {8, 64, 16});
  const auto weights = load(holds_8);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  EXPECT_EQ(moe(*weights, 2).up_proj.bits, 8);
}

// B124, and whatever else a matrix of three tensors can have wrong.
TEST(Weights, AMatrixMustAgreeWithItself) {
  struct Case {
    std::string tensor;
    DType dtype;
    std::vector<std::int64_t> shape;
    std::string message;
  };
  const Case cases[] = {
      {kUp + ".scales",
       DType::kBF16,
       {8, 64, 2},
       "expected shape [8, 64, 1], found BF16 [8, 64, 2]"},  // group 32
      {kUp + ".biases", DType::kBF16, {8, 64, 2}, "expected shape [8, 64, 1], found BF16 [8, 64, 2]"},
      {kUp + ".scales", DType::kBF16, {8, 64, 0}, "expected shape [8, 64, 1]"},
      {kUp + ".scales", DType::kBF16, {8, 64}, "expected shape [8, 64, 1]"},
      {kUp + ".scales", DType::kF16, {8, 64, 1}, "expected BF16, found F16 [8, 64, 1]"},
      {kUp + ".biases", DType::kF32, {8, 64, 1}, "expected BF16, found F32 [8, 64, 1]"},
      {kUp + ".weight", DType::kI32, {8, 64, 8}, "expected U32 (packed codes), found I32 [8, 64, 8]"},
      {kUp + ".weight", DType::kBF16, {8, 64, 64}, "expected U32 (packed codes), found BF16 [8, 64, 64]"},
      {kUp + ".weight", DType::kU32, {8, 64, 7}, "expected U32 [8, 64, 8] (4 bits), found U32 [8, 64, 7]"},
      {kUp + ".weight", DType::kU32, {8, 64, 0}, "expected U32 [8, 64, 8] (4 bits), found U32 [8, 64, 0]"},
      {kUp + ".weight", DType::kU32, {64, 64}, "expected U32 [8, 64, 8] (4 bits), found U32 [64, 64]"},
      {kUp + ".weight", DType::kU32, {}, "expected U32 [8, 64, 8] (4 bits), found U32 []"},
      {kUp + ".weight", DType::kU32, {7, 64, 8}, "found U32 [7, 64, 8]"},  // B136: 7 of 8 experts
  };
  for (const Case& c : cases) {
    TestCheckpoint made;
    made.reshape(c.tensor, c.dtype, c.shape);
    const auto weights = load(made);
    ASSERT_FALSE(weights.ok()) << c.message;
    EXPECT_EQ(weights.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(weights.error().message, AllOf(HasSubstr(c.tensor), HasSubstr(c.message)));
  }
}

TEST(Weights, VectorsMustHaveTheirShape) {
  TestCheckpoint made;
  made.reshape(in_model("norm.weight"), DType::kBF16, {63});
  EXPECT_THAT(load(made).error().message, HasSubstr("norm.weight: expected shape [64], found BF16 [63]"));
  made.reshape(in_model("norm.weight"), DType::kI16, {64});
  EXPECT_THAT(load(made).error().message, HasSubstr("expected BF16, F16 or F32, found I16 [64]"));
}

TEST(Weights, VectorsMayBeBf16OrHalfOrFloat) {
  TestCheckpoint made;
  const std::string a_log = in_model("layers.0.linear_attn.A_log");
  const std::string dt_bias = in_model("layers.0.linear_attn.dt_bias");
  made.reshape(a_log, DType::kF32, {2});
  const float values[] = {0.1F, 2.75F};
  std::memcpy(made.tensor(a_log).bytes.data(), values, sizeof(values));
  made.reshape(dt_bias, DType::kF16, {2});
  made.tensor(dt_bias).bytes = std::string("\x00\x3c\x00\xc4", 4);  // 1, -4
  const auto weights = load(made);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  EXPECT_THAT(recurrent(*weights, 0).A_log, ElementsAre(0.1F, 2.75F));
  EXPECT_THAT(recurrent(*weights, 0).dt_bias, ElementsAre(1.0F, -4.0F));
}

// B136
TEST(Weights, MissingTensorsAreNamed) {
  for (const std::string& name :
       {in_model("layers.1.input_layernorm.weight"), kUp + ".scales", kUp + ".biases", kRouter + ".weight",
        in_model("layers.0.linear_attn.A_log"), kHead + ".weight", in_model("embed_tokens.weight")}) {
    TestCheckpoint made;
    made.remove(name);
    const auto weights = load(made);
    ASSERT_FALSE(weights.ok()) << name;
    EXPECT_EQ(weights.error().code, ErrorCode::kNotFound);
    EXPECT_THAT(weights.error().message,
                AllOf(HasSubstr("1 of the model's tensors are missing"), HasSubstr(name)));
  }
}

// B136
TEST(Weights, ARenamedTensorIsMissingAndUnknown) {
  TestCheckpoint made;
  made.tensor(kRouter + ".scales").plan.name = kRouter + ".scale";
  EXPECT_THAT(load(made).error().message, AllOf(HasSubstr("missing: " + kRouter + ".scales"),
                                                HasSubstr("no place for: " + kRouter + ".scale")));
}

// B136
TEST(Weights, AnEmptyFileIsNoModel) {
  TestCheckpoint made;
  made.with_index = false;
  made.shards = {{}};
  EXPECT_THAT(load(made).error().message, HasSubstr("182 of the model's tensors are missing"));
}

// B136
TEST(Weights, UnknownTensorsAreRefused) {
  TestCheckpoint made;
  made.add(in_model("layers.0.linear_attn.in_proj_x.bias"), DType::kBF16, {64});
  made.add(in_model("layers.4.input_layernorm.weight"), DType::kBF16, {64});
  EXPECT_THAT(load(made).error().message,
              AllOf(HasSubstr("2 tensors that this model has no place for"), HasSubstr("in_proj_x.bias"),
                    HasSubstr("layers.4.input_layernorm.weight")));
}

// B136
TEST(Weights, OnlyATiedHeadMayBeMissing) {
  TestCheckpoint made;
  for (const char* part : {".weight", ".scales", ".biases"}) made.remove(kHead + part);
  EXPECT_THAT(load(made).error().message,
              HasSubstr("3 of the model's tensors are missing: " + kHead + ".weight"));
  made.config["text_config"]["tie_word_embeddings"] = true;
  const auto tied = load(made);
  ASSERT_TRUE(tied.ok()) << tied.error().message;
  EXPECT_EQ(tied->lm_head.weight, tied->embed_tokens.weight);
  EXPECT_EQ(tied->stored_bytes().head, 0);
  EXPECT_EQ(tied->token_bytes().head, tied->embed_tokens.bytes());

  TestCheckpoint redundant;
  redundant.config["text_config"]["tie_word_embeddings"] = true;
  const auto both = load(redundant);
  ASSERT_TRUE(both.ok()) << both.error().message;
  EXPECT_EQ(both->lm_head.weight, both->embed_tokens.weight);
}

TEST(Weights, TextOnlyNames) {
  TestCheckpoint made;
  const std::string prefix = "language_model.";
  for (auto& shard : made.shards) {
    for (auto& tensor : shard) tensor.plan.name.erase(0, prefix.size());
  }
  nlohmann::json renamed;
  for (const auto& [key, value] : made.config["quantization"].items()) {
    renamed[key.starts_with(prefix) ? key.substr(prefix.size()) : key] = value;
  }
  nlohmann::json text = made.config["text_config"];
  text["quantization"] = renamed;
  made.config = text;
  const auto weights = load(made);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  EXPECT_EQ(moe(*weights, 3).gate.bits, 8);
}

TEST(Weights, TellsAllThatIsWrongAtOnce) {
  TestCheckpoint made;
  made.remove(in_model("layers.1.linear_attn.dt_bias"));
  made.reshape(in_model("norm.weight"), DType::kBF16, {1});
  made.add("stray", DType::kU8, {1});
  EXPECT_THAT(load(made).error().message,
              AllOf(HasSubstr("dt_bias"), HasSubstr("norm.weight"), HasSubstr("stray")));
}

TEST(Weights, MessagesStayShortHoweverMuchIsWrong) {
  TestCheckpoint made;
  made.config["text_config"]["hidden_size"] = 128;
  const auto weights = load(made);
  ASSERT_FALSE(weights.ok());
  EXPECT_LT(weights.error().message.size(), 2000U);
  EXPECT_THAT(weights.error().message, HasSubstr(" more"));
}

// The published checkpoint's shapes, in files that are nearly all hole.
class PublishedShapes : public ::testing::Test {
 protected:
  void SetUp() override {
    const SynthPreset preset = find_synth_preset("qwen3.6-35b-a3b").value();
    const std::string config = synth_config_json(preset);
    const auto shards = cut_into_shards(published_layout(parse_config(config).value()), preset.omitted_bytes);
    testing::write_bytes(dir_.path() / "config.json", config);
    testing::write_bytes(dir_.path() / "model.safetensors.index.json", shard_index(shards));
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const auto path = dir_.path() / shard_name(i + 1, shards.size());
      const std::string header = safetensors_header(shards[i]);
      std::uintmax_t size = header.size();
      for (const TensorPlan& tensor : shards[i]) size += static_cast<std::uintmax_t>(tensor.bytes());
      testing::write_bytes(path, header);
      std::filesystem::resize_file(path, size);
    }
  }

  TempDir dir_;
};

TEST_F(PublishedShapes, LoadAndAddUpToThePublishedBudget) {
  const auto weights = load(dir_.string());
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  const WeightParts stored = weights->stored_bytes();
  EXPECT_EQ(stored.total(), 19508787456);
  EXPECT_EQ(stored.experts, std::int64_t{40} * 452984832);
  const WeightParts token = weights->token_bytes();
  EXPECT_EQ(weights->bytes_per_token(), 1669561728);
  EXPECT_EQ(token.recurrent_mixers, 570420480);
  EXPECT_EQ(token.experts, 566231040);
  EXPECT_EQ(token.head, 286064640);
  EXPECT_EQ(token.attention_mixers, 153364480);
  EXPECT_EQ(token.shared_experts, 70778880);
  EXPECT_EQ(token.routers, 22369280);
  EXPECT_EQ(token.norms, 331776);
  EXPECT_EQ(token.embedding, 1152);
  EXPECT_EQ(weights->parameters().total(), 34660610688);
  EXPECT_EQ(weights->active_parameters().total(), 2946429568);
}

class ReferenceWeights : public ::testing::TestWithParam<const char*> {};

TEST_P(ReferenceWeights, Load) {
  const char* root = std::getenv("LILY_REFERENCE_DIR");
  const std::string path =
      (root != nullptr ? std::string(root) : LILY_SOURCE_DIR "/../shared/reference") + "/" + GetParam();
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no reference checkpoint at " << path;
  const auto weights = load(path);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  for (const LayerWeights& layer : weights->layers) {
    // Gains are 1 + 0.1 N, with the 1 already in them.
    EXPECT_THAT(std::get<MoeWeights>(layer.mlp).post_attention_layernorm,
                Each(AllOf(::testing::Gt(0.3F), ::testing::Lt(1.7F))));
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, ReferenceWeights, ::testing::Values("small", "wide"));

// The published dense shapes in every format: nothing missing, nothing left, the tied head counted once.
TEST(Weights, DenseModelsLoadInEveryFormat) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group_size : {32, 64, 128}) {
      const TempDir dir;
      const std::string path = dir.string() + "/m";
      const auto made = synthesize({.out = path,
                                    .preset = "small-dense",
                                    .quantization = {.bits = bits, .group_size = group_size},
                                    .threads = 1,
                                    .tokenizer_from = {}});
      ASSERT_TRUE(made.ok()) << made.error().message;
      const auto weights = load(path);
      ASSERT_TRUE(weights.ok()) << weights.error().message;
      const auto& mlp = std::get<MlpWeights>(weights->layers[1].mlp);
      EXPECT_EQ(mlp.down_proj.in, 384);
      EXPECT_EQ(mlp.down_proj.bits, bits);
      EXPECT_EQ(mlp.down_proj.groups(), 384 / group_size);
      EXPECT_EQ(weights->lm_head.weight, weights->embed_tokens.weight);
      EXPECT_EQ(weights->stored_bytes().head, 0);
      EXPECT_EQ(weights->token_bytes().head, weights->stored_bytes().embedding);
      EXPECT_EQ(weights->token_bytes().experts, 0);
      EXPECT_EQ(weights->token_bytes().dense_mlps, 4 * 3 * mlp.down_proj.bytes());
    }
  }
}

// An override may ask for groups that an input is no multiple of.
TEST(Weights, GroupsMustBeWhole) {
  TestCheckpoint made;
  made.config["quantization"][kUp] = {{"group_size", 128}};
  EXPECT_THAT(load(made).error().message, HasSubstr("64 inputs are no whole number of groups of 128"));
}

TEST(Weights, EmbeddedModelLoads) {
  const auto weights = load("tiny");
  EXPECT_TRUE(weights.ok()) << weights.error().message;
}

}  // namespace
}  // namespace lily
