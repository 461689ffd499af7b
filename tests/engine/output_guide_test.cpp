#include "engine/output_guide.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/sampler.h"
#include "tests/text/small_tokenizer.h"
#include "text/json_schema.h"

namespace lily {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer instance = test::parse(test::small_tokenizer_json());
  return instance;
}

std::shared_ptr<GrammarAutomaton> grammar(const char* schema) {
  static const auto vocabulary = std::make_shared<const TokenVocabulary>(tokenizer());
  return std::make_shared<GrammarAutomaton>(*json_schema_grammar(nlohmann::ordered_json::parse(schema)),
                                            vocabulary);
}

// The ids that may come next; {-1} for any.
std::vector<TokenId> allowed(OutputGuide& guide) {
  const auto mask = guide.allowed();
  if (mask.empty()) return {-1};
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < tokenizer().end(); ++id) {
    if (has_bit(mask, id)) ids.push_back(id);
  }
  return ids;
}

void say(OutputGuide& guide, std::string_view text) {
  for (const TokenId id : test::byte_ids(text)) {
    const auto ids = allowed(guide);
    ASSERT_TRUE(ids == std::vector<TokenId>{-1} || std::ranges::find(ids, id) != ids.end())
        << text << " " << id;
    guide.accept(id);
  }
}

TEST(OutputGuide, HoldsContentToTheGrammarAndThenEnds) {
  OutputGuide guide(tokenizer(), {test::kImEnd}, {.grammar = grammar(R"({"enum":["ab","ac"]})")});
  EXPECT_EQ(allowed(guide), (std::vector<TokenId>{'\n', '"'}));
  say(guide, "\"a");
  EXPECT_EQ(allowed(guide), (std::vector<TokenId>{'b', 'c'}));
  say(guide, "c\"");
  EXPECT_EQ(allowed(guide), std::vector<TokenId>{test::kImEnd});
}

TEST(OutputGuide, LeavesReasoningFreeButNotUnfinished) {
  OutputGuide guide(tokenizer(), {test::kImEnd},
                    {.grammar = grammar(R"({"const":1})"), .in_reasoning = true});
  say(guide, "any {thing");
  const auto ids = allowed(guide);
  EXPECT_NE(std::ranges::find(ids, test::kEndThink), ids.end());
  EXPECT_EQ(std::ranges::find(ids, test::kImEnd), ids.end());
  guide.accept(test::kEndThink);
  say(guide, "\n\n1");
  EXPECT_EQ(allowed(guide), std::vector<TokenId>{test::kImEnd});
}

// What a guide that lets the model say nothing else makes it say.
std::string forced(OutputGuide& guide) {
  std::string text;
  for (auto ids = allowed(guide); ids.size() == 1 && ids[0] >= 0; ids = allowed(guide)) {
    text += tokenizer().bytes(ids[0]);
    guide.accept(ids[0]);
  }
  return text;
}

TEST(OutputGuide, ClosesTheBlockWhenTheBudgetIsUsedUp) {
  OutputGuide guide(tokenizer(), {test::kImEnd}, {.thinking_budget = 3, .in_reasoning = true});
  say(guide, "abc");
  const std::string said = forced(guide);
  EXPECT_TRUE(said.starts_with("\n\nConsidering the limited time")) << said;
  EXPECT_TRUE(said.ends_with("now.\n</think>\n\n")) << said;
  EXPECT_EQ(allowed(guide), std::vector<TokenId>{-1});

  OutputGuide none(tokenizer(), {test::kImEnd}, {.thinking_budget = 0, .in_reasoning = true});
  EXPECT_EQ(forced(none), "\n</think>\n\n");

  OutputGuide early(tokenizer(), {test::kImEnd}, {.thinking_budget = 3, .in_reasoning = true});
  say(early, "a");
  early.accept(test::kEndThink);
  say(early, "longer than the budget");
  EXPECT_EQ(allowed(early), std::vector<TokenId>{-1});

  OutputGuide outside(tokenizer(), {test::kImEnd}, {.thinking_budget = 0});
  EXPECT_EQ(allowed(outside), std::vector<TokenId>{-1});
}

TEST(Sampler, DrawsFromWhatIsAllowed) {
  for (const float temperature : {0.0F, 1.0F}) {
    const Sampler sampler({.temperature = temperature, .seed = 5, .logit_bias = {{0, 100.0F}}}, 130);
    for (int round = 0; round < 50; ++round) {
      std::vector<float> logits(140, 1.0F);
      logits[7] = 50.0F;
      logits[135] = 90.0F;
      const std::vector<TokenId> generated(static_cast<std::size_t>(round), 1);
      const std::vector<std::uint64_t> mask = {1ULL << 3U, 1ULL << 1U};  // 3 and 65; none from 128 on
      const Sampled sampled = sampler.sample(logits, {}, generated, true, 1, mask);
      EXPECT_TRUE(sampled.id == 3 || sampled.id == 65) << sampled.id;
      EXPECT_EQ(sampled.top[0].id, 7) << "log-probabilities are of the model, not of the grammar";
      EXPECT_LT(sampled.logprob, -40);
    }
  }
}

}  // namespace
}  // namespace lily
