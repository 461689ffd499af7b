#include "tests/text/small_tokenizer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "text/utf8.h"

namespace lily::test {
namespace {

constexpr std::string_view kPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

nlohmann::json added_token(TokenId id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

}  // namespace

std::string spell(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    char32_t letter = byte;
    if (byte <= 32) letter = 0x100U + byte;
    if (byte >= 127 && byte <= 160) letter = 0x100U + 33 + (byte - 127U);
    if (byte == 173) letter = 0x143;
    utf8::append(letter, out);
  }
  return out;
}

nlohmann::json small_tokenizer_json(const std::vector<std::pair<std::string, std::string>>& merges) {
  nlohmann::json vocab = nlohmann::json::object();
  for (int byte = 0; byte < 256; ++byte) vocab[spell(std::string(1, static_cast<char>(byte)))] = byte;
  nlohmann::json pairs = nlohmann::json::array();
  TokenId next = 256;
  for (const auto& [left, right] : merges) {
    pairs.push_back({spell(left), spell(right)});
    if (!vocab.contains(spell(left + right))) vocab[spell(left + right)] = next++;
  }
  const nlohmann::json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const nlohmann::json split = {
      {"type", "Split"}, {"pattern", {{"Regex", kPattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"version", "1.0"},
          {"added_tokens",
           {added_token(kImStart, "<|im_start|>", true), added_token(kImEnd, "<|im_end|>", true),
            added_token(kThink, "<think>", false), added_token(kEndThink, "</think>", false),
            added_token(kToolCall, "<tool_call>", false), added_token(kEndToolCall, "</tool_call>", false)}},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}}},
          {"post_processor", byte_level},
          {"decoder", byte_level},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", pairs}}}};
}

Tokenizer parse(const nlohmann::json& json) {
  auto tokenizer = Tokenizer::parse(json.dump());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return std::move(tokenizer).value();
}

std::vector<TokenId> byte_ids(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
}

std::string tiny_file(const std::string& name) {
  const auto text = read_file(std::string(LILY_SOURCE_DIR) + "/models/tiny/" + name);
  EXPECT_TRUE(text.has_value()) << "models/tiny/" << name;
  return text.value_or("");
}

std::string tiny_tokenizer_json() {
  return tiny_file("tokenizer.json");
}

std::optional<std::string> published_tokenizer_json() {
  if (const char* path = std::getenv("LILY_QWEN_TOKENIZER")) return read_file(path);
  return read_file(std::string(LILY_SOURCE_DIR) + "/../shared/data/qwen3.6-35b-a3b-4bit/tokenizer.json");
}

}  // namespace lily::test
