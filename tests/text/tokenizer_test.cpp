#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <map>
#include <random>

#include "tests/text/small_tokenizer.h"
#include "text/utf8.h"

namespace lily {
namespace {

using test::byte_ids;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Tokenizer, MergesByRankThenLeftmost) {
  // 256 "ab", 257 "bc", 258 "abc", 259 "aa", 260 "aaaa"
  const Tokenizer tokenizer = test::parse(
      test::small_tokenizer_json({{"a", "b"}, {"b", "c"}, {"ab", "c"}, {"a", "a"}, {"aa", "aa"}}));
  EXPECT_THAT(tokenizer.encode("abc"), ElementsAre(258));
  EXPECT_THAT(tokenizer.encode("bc"), ElementsAre(257));
  EXPECT_THAT(tokenizer.encode("bbc"), ElementsAre('b', 257));
  EXPECT_THAT(tokenizer.encode("aaa"), ElementsAre(259, 'a'));
  EXPECT_THAT(tokenizer.encode("aaaaaaa"), ElementsAre(260, 259, 'a'));
  EXPECT_THAT(tokenizer.encode("aab"), ElementsAre('a', 256));
  EXPECT_TRUE(tokenizer.encode("").empty());
}

// The definition, literally: look for the best pair, merge it, start over.
std::vector<TokenId> slow_bpe(std::string_view piece, const std::map<std::pair<TokenId, TokenId>, int>& ranks,
                              const std::vector<TokenId>& results) {
  std::vector<TokenId> ids = byte_ids(piece);
  while (true) {
    int best = -1;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = ranks.find({ids[i], ids[i + 1]});
      if (found != ranks.end() && (best < 0 || found->second < best)) {
        best = found->second;
        at = i;
      }
    }
    if (best < 0) return ids;
    ids[at] = results[static_cast<std::size_t>(best)];
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(Tokenizer, MergesAsTheDefinitionSays) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::string> tokens = {"a", "b", "c"};
    std::vector<std::pair<std::string, std::string>> merges;
    for (int i = 0; i < 30; ++i) {
      const std::string& left = tokens[random() % tokens.size()];
      const std::string& right = tokens[random() % tokens.size()];
      if (std::find(tokens.begin(), tokens.end(), left + right) != tokens.end()) continue;
      merges.emplace_back(left, right);
      tokens.push_back(left + right);
    }
    std::map<std::string, TokenId> ids = {{"a", 'a'}, {"b", 'b'}, {"c", 'c'}};
    std::map<std::pair<TokenId, TokenId>, int> ranks;
    std::vector<TokenId> results;
    for (const auto& [left, right] : merges) {
      ids[left + right] = static_cast<TokenId>(256 + results.size());
      ranks[{ids[left], ids[right]}] = static_cast<int>(results.size());
      results.push_back(ids[left + right]);
    }
    const Tokenizer tokenizer = test::parse(test::small_tokenizer_json(merges));
    for (int i = 0; i < 200; ++i) {
      std::string text;
      for (std::size_t n = random() % 40; n > 0; --n) text += static_cast<char>('a' + random() % 3);
      ASSERT_EQ(tokenizer.encode(text), slow_bpe(text, ranks, results)) << text;
    }
  }
}

TEST(Tokenizer, TakesMergesAsStringsToo) {
  nlohmann::json json = test::small_tokenizer_json({{"a", "b"}, {" ", "ab"}});
  const Tokenizer pairs = test::parse(json);
  for (nlohmann::json& merge : json["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  const Tokenizer strings = test::parse(json);
  EXPECT_THAT(pairs.encode(" ab"), ElementsAre(257));
  EXPECT_EQ(strings.encode(" ab ab"), pairs.encode(" ab ab"));
}

TEST(Tokenizer, IgnoreMergesTakesWholePieces) {
  nlohmann::json json = test::small_tokenizer_json({{"a", "b"}});
  json["model"]["vocab"]["abb"] = 400;
  EXPECT_THAT(test::parse(json).encode("abb"), ElementsAre(256, 'b'));
  json["model"]["ignore_merges"] = true;
  EXPECT_THAT(test::parse(json).encode("abb"), ElementsAre(400));
}

TEST(Tokenizer, MatchesAddedTokensOrLeavesThemText) {
  const Tokenizer tokenizer = test::parse(test::small_tokenizer_json());
  EXPECT_THAT(tokenizer.encode("<|im_start|>a</think>"), ElementsAre(test::kImStart, 'a', test::kEndThink));
  EXPECT_EQ(tokenizer.encode("<think>", AddedTokenMatching::kLiteral), byte_ids("<think>"));
  EXPECT_EQ(tokenizer.encode("<thin<think"), byte_ids("<thin<think"));
  EXPECT_THAT(tokenizer.encode("<<think>"), ElementsAre('<', test::kThink));
  EXPECT_EQ(tokenizer.added_token("</think>"), test::kEndThink);
  EXPECT_EQ(tokenizer.added_token("a"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(test::kImEnd));
  EXPECT_FALSE(tokenizer.is_special(test::kThink));
  EXPECT_FALSE(tokenizer.is_special(-1));
}

TEST(Tokenizer, AddedTokenFlags) {
  nlohmann::json json = test::small_tokenizer_json();
  const auto add = [&](TokenId id, const char* content, const char* flag) {
    nlohmann::json token = json["added_tokens"][2];
    token["id"] = id;
    token["content"] = content;
    if (flag != nullptr) token[flag] = true;
    json["added_tokens"].push_back(token);
  };
  add(1010, "<L>", "lstrip");
  add(1011, "<R>", "rstrip");
  add(1012, "\u00e9!", "normalized");
  add(1013, "<a>", nullptr);
  add(1014, "<a><b>", nullptr);  // longer, and starts at the same place
  const Tokenizer tokenizer = test::parse(json);
  EXPECT_THAT(tokenizer.encode("x \n\u3000<L> y"), ElementsAre('x', 1010, ' ', 'y'));
  EXPECT_THAT(tokenizer.encode("x <R> \u00a0y"), ElementsAre('x', ' ', 1011, 'y'));
  EXPECT_THAT(tokenizer.encode("<R>  <L>"), ElementsAre(1011, 1010));
  EXPECT_THAT(tokenizer.encode("e\u0301!"), ElementsAre(1012));
  EXPECT_THAT(tokenizer.encode("<a><b><a>"), ElementsAre(1014, 1013));

  json["added_tokens"].back()["single_word"] = true;
  const auto refused = Tokenizer::parse(json.dump());
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("added_tokens[10].single_word"));
}

TEST(Tokenizer, NormalizesOnlyIfTheFileSaysSo) {
  nlohmann::json json = test::small_tokenizer_json();
  EXPECT_EQ(test::parse(json).encode("e\u0301"), byte_ids("\u00e9"));
  json["normalizer"] = nullptr;
  EXPECT_EQ(test::parse(json).encode("e\u0301"), byte_ids("e\u0301"));
}

TEST(Tokenizer, ReplacesBrokenBytes) {
  const Tokenizer tokenizer = test::parse(test::small_tokenizer_json());
  EXPECT_EQ(tokenizer.encode("a\xC3(\xE2\x82"), byte_ids("a\uFFFD(\uFFFD"));
  EXPECT_EQ(tokenizer.encode(std::string_view("\0", 1)), byte_ids(std::string_view("\0", 1)));
}

TEST(Tokenizer, DecodesBytesAndAddedTokens) {
  const Tokenizer tokenizer = test::parse(test::small_tokenizer_json({{" ", "a"}}));
  EXPECT_EQ(tokenizer.bytes(256), " a");
  EXPECT_EQ(tokenizer.bytes(0xC3), "\xC3");
  EXPECT_EQ(tokenizer.bytes(999), "");
  EXPECT_EQ(tokenizer.bytes(-1), "");
  EXPECT_FALSE(tokenizer.has_token(257));
  EXPECT_EQ(tokenizer.end(), 1006);
  const std::vector<TokenId> ids = {test::kImStart, 256, 0xC3, 0xA9, test::kThink, 0xC3, 'x', 0xF0, 0x9F};
  EXPECT_EQ(tokenizer.decode(ids), "<|im_start|> aé<think>\uFFFDx\uFFFD");
  EXPECT_EQ(tokenizer.decode(ids, true), " aé<think>\uFFFDx\uFFFD");
}

TEST(Tokenizer, RefusesByName) {
  using nlohmann::literals::operator""_json;
  struct Case {
    const char* pointer;
    nlohmann::json value;
    const char* message;
  };
  const std::vector<Case> cases = {
      {"/normalizer", {{"type", "NFKC"}}, "normalizer.type: expected \"NFC\", found \"NFKC\""},
      {"/pre_tokenizer", {{"type", "Whitespace"}}, "pre_tokenizer.type"},
      {"/pre_tokenizer", nullptr, "pre_tokenizer: missing"},
      {"/pre_tokenizer/pretokenizers/0/behavior", "Removed", "behavior: expected \"Isolated\""},
      {"/pre_tokenizer/pretokenizers/0/invert", true, "invert"},
      {"/pre_tokenizer/pretokenizers/0/pattern", {{"String", " "}}, "pretokenizers[0].pattern"},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "(", "split pattern"},
      {"/pre_tokenizer/pretokenizers/1/add_prefix_space", true, "add_prefix_space"},
      {"/pre_tokenizer/pretokenizers/1/use_regex", true, "use_regex"},
      {"/post_processor", {{"type", "TemplateProcessing"}}, "post_processor.type"},
      {"/decoder", {{"type", "Metaspace"}}, "decoder.type"},
      {"/model/type", "Unigram", "model.type: expected \"BPE\", found \"Unigram\""},
      {"/model/dropout", 0.1, "model.dropout"},
      {"/model/byte_fallback", true, "model.byte_fallback"},
      {"/model/continuing_subword_prefix", "##", "model.continuing_subword_prefix"},
      {"/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix"},
      {"/model/vocab", nlohmann::json::array(), "model.vocab"},
      {"/model/vocab/A", -1, "model.vocab"},
      {"/model/vocab/A", 1 << 30, "model.vocab: id 1073741824"},
      {"/model/vocab/A", "1", "model.vocab"},
      {"/model/vocab/A", 66, "id 66 has two tokens"},
      {"/model/merges", R"([["a", "b"]])"_json, "\"ab\" is not in the vocabulary"},
      {"/model/merges", R"([["zz", "b"]])"_json, "\"zz\" is not in the vocabulary"},
      {"/model/merges", R"(["a b c"])"_json, "two tokens and one space"},
      {"/model/merges", R"([["a"]])"_json, "a pair of 1"},
      {"/model/merges", R"([["a", "b", "c"]])"_json, "a pair of more"},
      {"/model/merges", R"([["a", 1]])"_json, "neither a string nor a pair"},
      {"/model/merges", R"([["a", ["b"]]])"_json, "neither a string nor a pair"},
      {"/model/merges", R"([5])"_json, "neither a string nor a pair"},
      {"/model/merges", R"({"a": 1})"_json, "model.merges: expected"},
      {"/added_tokens/1/id", 1000, "has the id 1000 of \"<|im_start|>\""},
      {"/added_tokens/1/id", 97, "has the id 97 of \"a\""},
      {"/added_tokens/1/id", -5, "added_tokens[1].id"},
      {"/added_tokens/1/content", "<think>", "listed twice"},
      {"/added_tokens/1/content", "", "added_tokens[1].content"},
      {"/added_tokens/1", 7, "added_tokens[1]"},
  };
  for (const Case& c : cases) {
    nlohmann::json json = test::small_tokenizer_json();
    json[nlohmann::json::json_pointer(c.pointer)] = c.value;
    const auto tokenizer = Tokenizer::parse(json.dump());
    ASSERT_FALSE(tokenizer.ok()) << c.pointer;
    EXPECT_THAT(tokenizer.error().message, HasSubstr(c.message)) << c.pointer;
  }
}

TEST(Tokenizer, RefusesWhatIsNoTokenizer) {
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "[";
  nlohmann::json missing_byte = test::small_tokenizer_json();
  missing_byte["model"]["vocab"].erase("A");
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("{}"), deep,
        std::string("{\"model\": {\"vocab\": {\"\xff\": 1}}}"), missing_byte.dump()}) {
    EXPECT_FALSE(Tokenizer::parse(text).ok()) << text.substr(0, 40);
  }
  EXPECT_THAT(Tokenizer::parse(missing_byte.dump()).error().message, HasSubstr("no token for byte 0x41"));
}

// --- the embedded model's tokenizer
// -----------------------------------------------------------------------------------

const Tokenizer& tiny() {
  static const Tokenizer tokenizer = Tokenizer::parse(test::tiny_tokenizer_json()).value();
  return tokenizer;
}

TEST(TinyTokenizer, RoundTrips) {
  for (const std::string text :
       {"Hello, world!", "  one\t two\n\nthree  \n", "I'm 1234, we're coding.",
        "def f(x: int) -> str:\n    return 1\n", "Caffè già, perché l'AI è utile.", "中文测试：こんにちは。",
        "👩‍💻", "<|im_start|>user\nHi<|im_end|>\n"}) {
    EXPECT_EQ(tiny().decode(tiny().encode(text)), text);
    EXPECT_EQ(tiny().decode(tiny().encode(text, AddedTokenMatching::kLiteral)), text);
  }
}

TEST(TinyTokenizer, KnowsTheControlTokens) {
  const std::vector<TokenId> ids =
      tiny().encode("<|im_start|><|im_end|><think></think><tool_call></tool_call>");
  EXPECT_EQ(ids.size(), 6U);
  EXPECT_TRUE(tiny().is_special(ids[0]));
  EXPECT_FALSE(tiny().is_special(ids[2]));
  EXPECT_EQ(tiny().encode("12345").size(), 5U);
}

// On a stack as small as a server's thread may have.
void* encode_long_runs(void* /*unused*/) {
  struct Run {
    const char* unit;
    int count;
  };
  for (const Run& run :
       {Run{"A", 300000}, Run{"漢", 100000}, Run{"\u0301", 100000}, Run{"!", 300000}, Run{" ", 300000},
        Run{"\n", 300000}, Run{"\u0323\u0301", 100000}, Run{"<|im_end", 50000}, Run{"<", 300000},
        Run{"\u1100\u1161\u11a8", 50000}, Run{"\xff", 300000}}) {
    std::string text;
    for (int i = 0; i < run.count; ++i) text += run.unit;
    const std::vector<TokenId> ids = tiny().encode(text);
    std::size_t bytes = 0;
    for (const TokenId id : ids) bytes += tiny().bytes(id).size();
    EXPECT_GT(bytes, 0U);
  }
  return nullptr;
}

TEST(TinyTokenizer, LongRunsNeedNeitherStackNorQuadraticTime) {
  tiny();
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 128 << 10);
  pthread_t thread{};
  ASSERT_EQ(pthread_create(&thread, &attributes, encode_long_runs, nullptr), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

// --- the published tokenizer
// ------------------------------------------------------------------------------------------

class PublishedTokenizer : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (const auto json = test::published_tokenizer_json()) {
      tokenizer_ = std::make_unique<Tokenizer>(Tokenizer::parse(*json).value());
    }
  }
  static void TearDownTestSuite() { tokenizer_.reset(); }
  void SetUp() override {
    if (tokenizer_ == nullptr) {
      GTEST_SKIP() << "no tokenizer.json of Qwen3.6: set LILY_QWEN_TOKENIZER (tools/parity/tokenizer.py "
                      "--save makes it)";
    }
  }
  static std::unique_ptr<Tokenizer> tokenizer_;
};
std::unique_ptr<Tokenizer> PublishedTokenizer::tokenizer_;

TEST_F(PublishedTokenizer, GoldenIds) {
  using Ids = std::vector<TokenId>;
  const std::vector<std::pair<std::string, Ids>> cases = {
      {"Hello, world!", {9419, 11, 1814, 0}},
      {"Caffè già, perché l'AI è utile.",
       {34, 2562, 4311, 69028, 11, 58902, 324, 6, 15015, 11094, 175523, 13}},
      {"中文测试：こんにちは。", {99986, 99449, 4960, 85951, 1710}},
      {"  one\t two\n\nthree  \n", {220, 799, 197, 1330, 271, 26952, 2228}},
      {"I'm 1234, we're coding.", {40, 2688, 220, 16, 17, 18, 19, 11, 567, 2224, 10505, 13}},
      {"def f(x: int) -> str:\n    return f\"{x=}\"\n",
       {727, 281, 2007, 25, 514, 8, 1411, 592, 25, 198, 262, 460, 281, 13724, 87, 28, 9571, 198}},
      {"\u0301!I", {52033, 87383}},
      {"<|fim_prefix|>left<|fim_suffix|>right<|fim_middle|>", {248060, 2282, 248062, 1246, 248061}},
      {"<think>penso</think>", {248068, 2664, 684, 248069}},
      {"<tool_call>get_weather</tool_call>", {248058, 447, 67017, 248059}},
      {"👩‍💻 café e\u0301", {9008, 239, 102, 373, 235, 88995, 119, 50203, 3825}},
      {"<|im_start|>user\nQuanto fa 17 * 23?<|im_end|>\n<|im_start|>assistant\n<think>\n",
       {248045, 846, 198, 2114,   13168, 2148,   220,   16,  22,     348, 220,
        17,     18,  30,  248046, 198,   248045, 74455, 198, 248068, 198}},
      {"The capital of France is", {760, 6511, 314, 9338, 369}},
      {"<|im_start|>user\nName the two colors of a chessboard.<|im_end|>\n<|im_start|>assistant\n<think>\n",
       {248045, 846, 198, 657, 279, 1330, 7736, 314, 264, 31634, 2402, 13, 248046, 198, 248045, 74455, 198,
        248068, 198}},
  };
  for (const auto& [text, ids] : cases) EXPECT_EQ(tokenizer_->encode(text), ids) << text;
}

TEST_F(PublishedTokenizer, Shape) {
  EXPECT_EQ(tokenizer_->end(), 248077);
  EXPECT_EQ(tokenizer_->added_token("<|im_end|>"), 248046);
  EXPECT_EQ(tokenizer_->added_token("</think>"), 248069);
  EXPECT_TRUE(tokenizer_->is_special(248076));
  EXPECT_FALSE(tokenizer_->is_special(248058));
  for (TokenId id = 0; id < tokenizer_->end(); ++id) ASSERT_TRUE(tokenizer_->has_token(id)) << id;
  EXPECT_FALSE(tokenizer_->has_token(248077));
  EXPECT_THAT(tokenizer_->encode("\n\n"), ElementsAre(271));
}

TEST_F(PublishedTokenizer, CountsToSevenHundred) {
  std::string text = "1";
  for (int i = 2; i < 700; ++i) text += " " + std::to_string(i);
  EXPECT_EQ(tokenizer_->encode(text).size(), 2687U);
}

}  // namespace
}  // namespace lily
