#include "checkpoint/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoint/synth_config.h"
#include "tests/checkpoint/test_checkpoint.h"

namespace lily {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json good() {
  return json::parse(synth_config_json(find_synth_preset("qwen3.6-35b-a3b").value()));
}

TEST(Config, PublishedValues) {
  const auto config = parse_config(good().dump());
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->model_type, "qwen3_5_moe");
  EXPECT_EQ(config->vocab_size, 248320);
  EXPECT_EQ(config->hidden_size, 2048);
  EXPECT_EQ(config->num_hidden_layers, 40);
  EXPECT_EQ(config->num_attention_heads, 16);
  EXPECT_EQ(config->num_key_value_heads, 2);
  EXPECT_EQ(config->head_dim, 256);
  EXPECT_EQ(config->linear_num_key_heads, 16);
  EXPECT_EQ(config->linear_num_value_heads, 32);
  EXPECT_EQ(config->linear_key_head_dim, 128);
  EXPECT_EQ(config->linear_value_head_dim, 128);
  EXPECT_EQ(config->linear_conv_kernel_dim, 4);
  EXPECT_EQ(config->num_experts, 256);
  EXPECT_EQ(config->num_experts_per_tok, 8);
  EXPECT_EQ(config->moe_intermediate_size, 512);
  EXPECT_EQ(config->shared_expert_intermediate_size, 512);
  EXPECT_EQ(config->max_position_embeddings, 262144);
  EXPECT_EQ(config->rotary_dim, 64);
  EXPECT_EQ(config->rope_theta, 1e7);
  EXPECT_EQ(config->rms_norm_eps, 1e-6F);
  EXPECT_FALSE(config->tie_word_embeddings);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(248046, 248044));
  ASSERT_EQ(config->layer_types.size(), 40U);
  for (std::size_t i = 0; i < 40; ++i)
    EXPECT_EQ(config->layer_types[i] == LayerType::kFullAttention, i % 4 == 3) << i;
  ASSERT_TRUE(config->quantization.has_value());
  EXPECT_EQ(config->quantization->overrides.size(), 80U);
  EXPECT_EQ(config->quantization->of("language_model.model.layers.39.mlp.gate").bits, 8);
  EXPECT_EQ(config->quantization->of("language_model.model.layers.39.mlp.switch_mlp.up_proj").bits, 4);
}

TEST(Config, SynthesizedFileIsThePublishedOne) {
  const std::string path = LILY_SOURCE_DIR "/../shared/data/qwen3.6-35b-a3b-4bit/config.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no published config.json at " << path;
  EXPECT_EQ(synth_config_json(find_synth_preset("qwen3.6-35b-a3b").value()), testing::read_bytes(path));
}

TEST(Config, TextOnlyFile) {
  json file = good();
  json text = file["text_config"];
  text["quantization"] = file["quantization"];
  const auto config = parse_config(text.dump());
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->model_type, "qwen3_5_moe");
  EXPECT_EQ(config->num_hidden_layers, 40);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(248044));
}

TEST(Config, LayersFollowTheIntervalWithoutALlist) {
  json file = good();
  file["text_config"].erase("layer_types");
  file["text_config"]["full_attention_interval"] = 5;
  const auto config = parse_config(file.dump());
  ASSERT_TRUE(config.ok()) << config.error().message;
  for (std::size_t i = 0; i < 40; ++i)
    EXPECT_EQ(config->layer_types[i] == LayerType::kFullAttention, i % 5 == 4) << i;
}

TEST(Config, LayerListWinsOverTheInterval) {
  json file = good();
  file["text_config"]["num_hidden_layers"] = 2;
  file["text_config"]["layer_types"] = {"full_attention", "linear_attention"};
  const auto config = parse_config(file.dump());
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_THAT(config->layer_types, ElementsAre(LayerType::kFullAttention, LayerType::kLinearAttention));
}

TEST(Config, StopIdsAreAUnionWithinTheVocabulary) {
  json file = good();
  file["eos_token_id"] = {7, 5, 7, 248320};
  file["text_config"]["eos_token_id"] = 9;
  EXPECT_THAT(parse_config(file.dump())->eos_token_ids, ElementsAre(7, 5, 9));
  file["eos_token_id"] = nullptr;
  file["text_config"].erase("eos_token_id");
  EXPECT_THAT(parse_config(file.dump())->eos_token_ids, IsEmpty());
}

TEST(Config, TiedHead) {
  json file = good();
  file["tie_word_embeddings"] = true;
  file["text_config"].erase("tie_word_embeddings");
  EXPECT_TRUE(parse_config(file.dump())->tie_word_embeddings);
  file["text_config"]["tie_word_embeddings"] = false;  // the nearer one counts
  EXPECT_FALSE(parse_config(file.dump())->tie_word_embeddings);
}

TEST(Config, DenseMembersHaveNoExperts) {
  json file = good();
  file["model_type"] = "qwen3_5";
  json& text = file["text_config"];
  text["model_type"] = "qwen3_5_text";
  for (const char* key :
       {"num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size"}) {
    text.erase(key);
  }
  EXPECT_THAT(parse_config(file.dump()).error().message, HasSubstr("text_config.intermediate_size: missing"));
  text["intermediate_size"] = 3584;
  const auto config = parse_config(file.dump());
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_TRUE(config->is_dense());
  EXPECT_EQ(config->model_type, "qwen3_5");
  EXPECT_EQ(config->num_experts, 0);
}

TEST(Config, WidthsAndGroupsOfMixedQuantizations) {
  json file = good();
  file["quantization"] = {
      {"group_size", 128}, {"bits", 3}, {"a", {{"bits", 6}}}, {"b", {{"bits", 5}, {"group_size", 32}}}};
  const auto config = parse_config(file.dump());
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->quantization->defaults, (QuantizationSpec{.bits = 3, .group_size = 128}));
  EXPECT_EQ(config->quantization->of("a"), (QuantizationSpec{.bits = 6, .group_size = 128}));
  EXPECT_EQ(config->quantization->of("b"), (QuantizationSpec{.bits = 5, .group_size = 32}));
}

TEST(Config, RopeOfOlderFiles) {
  json file = good();
  file["text_config"].erase("rope_parameters");
  file["text_config"]["rope_theta"] = 5000000.0;
  const auto config = parse_config(file.dump());
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->rope_theta, 5e6);
}

TEST(Config, QuantizationMayBeAbsentOrUnderItsOtherName) {
  json file = good();
  file.erase("quantization");
  EXPECT_EQ(parse_config(file.dump())->quantization->defaults.bits, 4);
  file.erase("quantization_config");
  const auto original = parse_config(file.dump());
  ASSERT_TRUE(original.ok()) << original.error().message;
  EXPECT_FALSE(original->quantization.has_value());
}

TEST(Config, OverridesInheritWhatTheyLeaveOut) {
  json file = good();
  file["quantization"] = {
      {"group_size", 64}, {"bits", 8}, {"a", {{"bits", 4}}}, {"b", true}, {"mtp.fc", {{"bits", 3}}}};
  const auto config = parse_config(file.dump());
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->quantization->of("a"), (QuantizationSpec{.bits = 4, .group_size = 64}));
  EXPECT_EQ(config->quantization->of("b"), (QuantizationSpec{.bits = 8, .group_size = 64}));
}

// What a JSON merge patch makes of the published file.
struct BadConfig {
  const char* what;
  const char* patch;
  ErrorCode code;
  const char* message;
};

class BadConfigFile : public ::testing::TestWithParam<BadConfig> {};

TEST_P(BadConfigFile, IsRefusedByKey) {
  json file = good();
  file.merge_patch(json::parse(GetParam().patch));
  const auto config = parse_config(file.dump());
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().code, GetParam().code) << config.error().message;
  EXPECT_THAT(config.error().message, HasSubstr(GetParam().message));
}

std::string name_of(const ::testing::TestParamInfo<BadConfig>& info) {
  return info.param.what;
}

constexpr auto kCorrupt = ErrorCode::kCorrupt;
constexpr auto kUnsupported = ErrorCode::kUnsupported;

INSTANTIATE_TEST_SUITE_P(
    Architecture, BadConfigFile,
    ::testing::ValuesIn(std::vector<BadConfig>{
        BadConfig{"two_types", R"({"model_type":"qwen3_5"})", kCorrupt,
                  "text_config.model_type: expected \"qwen3_5_text\", found \"qwen3_5_moe_text\""},
        BadConfig{"other", R"({"model_type":"llama"})", kUnsupported,
                  "model_type: expected \"qwen3_5_moe\" or \"qwen3_5\", found \"llama\""},
        BadConfig{"no_type", R"({"model_type":null})", kCorrupt, "model_type"},
        BadConfig{"type_number", R"({"model_type":1})", kCorrupt, "model_type"},
        BadConfig{"text_config_list", R"({"text_config":[1]})", kCorrupt, "text_config: expected an object"},
        BadConfig{"activation", R"({"text_config":{"hidden_act":"gelu"}})", kUnsupported,
                  "hidden_act: expected \"silu\", found \"gelu\""},
        BadConfig{"bias", R"({"text_config":{"attention_bias":true}})", kUnsupported, "attention_bias"},
        BadConfig{"ungated", R"({"text_config":{"attn_output_gate":false}})", kUnsupported,
                  "attn_output_gate"},
        BadConfig{"not_renormalised", R"({"text_config":{"norm_topk_prob":false}})", kUnsupported,
                  "norm_topk_prob"},
        BadConfig{"some_dense_layers", R"({"text_config":{"mlp_only_layers":[0]}})", kUnsupported,
                  "mlp_only_layers"},
        BadConfig{"head_dim", R"({"text_config":{"head_dim":128}})", kUnsupported,
                  "text_config.head_dim: expected 256, found 128"},
        BadConfig{"key_dim", R"({"text_config":{"linear_key_head_dim":64}})", kUnsupported,
                  "linear_key_head_dim"},
        BadConfig{"value_dim", R"({"text_config":{"linear_value_head_dim":64}})", kUnsupported,
                  "linear_value_head_dim"},
        BadConfig{"kernel", R"({"text_config":{"linear_conv_kernel_dim":3}})", kUnsupported,
                  "linear_conv_kernel_dim"},
        BadConfig{"yarn", R"({"text_config":{"rope_parameters":{"rope_type":"yarn"}}})", kUnsupported,
                  "text_config.rope_parameters.rope_type: expected \"default\", found \"yarn\""},
        BadConfig{"old_yarn", R"({"text_config":{"rope_scaling":{"type":"yarn"}}})", kUnsupported,
                  "rope_scaling.type"},
        BadConfig{"rotary", R"({"text_config":{"rope_parameters":{"partial_rotary_factor":0.5}}})",
                  kUnsupported, "partial_rotary_factor: expected 64 of head_dim 256, found 0.5"},
        BadConfig{"no_theta", R"({"text_config":{"rope_parameters":{"rope_theta":null}}})", kCorrupt,
                  "rope_theta: missing"},
        BadConfig{"theta_zero", R"({"text_config":{"rope_parameters":{"rope_theta":0}}})", kCorrupt,
                  "rope_theta"}}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Sizes, BadConfigFile,
    ::testing::ValuesIn(std::vector<BadConfig>{
        BadConfig{"missing", R"({"text_config":{"hidden_size":null}})", kCorrupt,
                  "text_config.hidden_size: missing"},
        BadConfig{"zero", R"({"text_config":{"num_experts":0}})", kCorrupt, "num_experts"},
        BadConfig{"negative", R"({"text_config":{"vocab_size":-1}})", kCorrupt, "vocab_size"},
        BadConfig{"fraction", R"({"text_config":{"hidden_size":2048.0}})", kCorrupt, "hidden_size"},
        BadConfig{"text", R"({"text_config":{"hidden_size":"2048"}})", kCorrupt, "found \"2048\""},
        BadConfig{"list", R"({"text_config":{"num_attention_heads":[16]}})", kCorrupt, "num_attention_heads"},
        BadConfig{"huge", R"({"text_config":{"vocab_size":9223372036854775808}})", kCorrupt,
                  "vocab_size: expected a whole number from 1 to 16777216, found 9223372036854775808"},
        BadConfig{"many_layers", R"({"text_config":{"num_hidden_layers":1048576}})", kCorrupt,
                  "num_hidden_layers"},
        BadConfig{"heads", R"({"text_config":{"num_key_value_heads":3}})", kCorrupt,
                  "num_attention_heads: 16 is not a multiple of num_key_value_heads 3"},
        BadConfig{"linear_heads", R"({"text_config":{"linear_num_key_heads":5}})", kCorrupt,
                  "linear_num_value_heads"},
        BadConfig{"too_few_experts", R"({"text_config":{"num_experts_per_tok":257}})", kCorrupt,
                  "num_experts_per_tok: 257 is more than num_experts 256"},
        BadConfig{"width", R"({"text_config":{"moe_intermediate_size":520}})", kUnsupported,
                  "moe_intermediate_size: 520 is not a multiple of 64, for quantization groups of 64"},
        BadConfig{"eps", R"({"text_config":{"rms_norm_eps":-1e-6}})", kCorrupt, "rms_norm_eps"},
        BadConfig{"eps_one", R"({"text_config":{"rms_norm_eps":1}})", kCorrupt, "rms_norm_eps"},
        BadConfig{"short_list", R"({"text_config":{"layer_types":["full_attention"]}})", kCorrupt,
                  "layer_types: expected a list of num_hidden_layers = 40 entries, found 1"},
        BadConfig{"unknown_layer",
                  R"({"text_config":{"num_hidden_layers":1,"layer_types":["sliding_attention"]}})",
                  kUnsupported, "found \"sliding_attention\""},
        BadConfig{"layer_number", R"({"text_config":{"num_hidden_layers":1,"layer_types":[1]}})",
                  kUnsupported, "layer_types"},
        BadConfig{"no_layers", R"({"text_config":{"layer_types":null,"full_attention_interval":null}})",
                  kCorrupt, "full_attention_interval"},
        BadConfig{"tied_text", R"({"text_config":{"tie_word_embeddings":"no"}})", kCorrupt,
                  "tie_word_embeddings"},
        BadConfig{"eos_negative", R"({"eos_token_id":[1,-1]})", kCorrupt, "eos_token_id"},
        BadConfig{"eos_text", R"({"eos_token_id":"<|im_end|>"})", kCorrupt, "eos_token_id"}}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Quantization, BadConfigFile,
    ::testing::ValuesIn(std::vector<BadConfig>{
        BadConfig{"seven_bits", R"({"quantization":{"bits":7}})", kUnsupported,
                  "quantization.bits: expected 2 or 3 or 4 or 5 or 6 or 8, found 7"},
        BadConfig{"group_16", R"({"quantization":{"group_size":16}})", kUnsupported,
                  "quantization.group_size: expected 32 or 64 or 128, found 16"},
        BadConfig{"group_zero", R"({"quantization":{"group_size":0}})", kCorrupt, "quantization.group_size"},
        BadConfig{"mxfp4", R"({"quantization":{"mode":"mxfp4"}})", kUnsupported, "quantization.mode"},
        BadConfig{"no_bits", R"({"quantization":{"bits":null}})", kCorrupt, "quantization.bits: missing"},
        BadConfig{"list", R"({"quantization":[]})", kCorrupt, "quantization: expected an object"},
        BadConfig{"override_bits", R"({"quantization":{"x.y":{"bits":1}}})", kUnsupported,
                  "quantization.x.y.bits: expected 2 or 3 or 4 or 5 or 6 or 8, found 1"},
        BadConfig{"override_mode", R"({"quantization":{"x.y":{"mode":"nvfp4"}}})", kUnsupported,
                  "quantization.x.y.mode"},
        BadConfig{"unquantized_module", R"({"quantization":{"x.y":false}})", kUnsupported,
                  "quantization.x.y"},
        BadConfig{"gptq", R"({"quantization":null,"quantization_config":{"quant_method":"gptq"}})",
                  kUnsupported, "quantization_config.quant_method"}}),
    name_of);

TEST(Config, TextThatIsNoConfig) {
  const std::pair<std::string, const char*> texts[] = {
      {"", "not valid JSON"},
      {"null", "expected a JSON object"},
      {"[]", "expected a JSON object"},
      {"{\"a\":1}{}", "not valid JSON"},
      {"{\"a\":NaN}", "not valid JSON at byte"},
      {"{\"a\":\"\xc3\"}", "not valid JSON"},
      {"{\"a\":1,\"a\":2}", "\"a\" occurs twice"},
      {std::string(1000000, '['), "nested deeper than 32"},
      {std::string(20U << 20U, ' '), "expected at most 16777216"},
      {good().dump().substr(0, 1000), "not valid JSON"}};
  for (const auto& [text, message] : texts) {
    const auto config = parse_config(text);
    ASSERT_FALSE(config.ok()) << text.substr(0, 40);
    EXPECT_THAT(config.error().message, HasSubstr(message));
  }
}

}  // namespace
}  // namespace lily
