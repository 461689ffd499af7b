#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/text/small_tokenizer.h"
#include "text/utf8.h"

namespace lily {
namespace {

// Tokens of every size: bytes, pairs and triples that cut characters anywhere.
const Tokenizer& tokenizer() {
  static const Tokenizer instance = test::parse(test::small_tokenizer_json({{"\xF0", "\x9F"},
                                                                            {"\xF0\x9F", "\x98"},
                                                                            {"\x98", "\x80"},
                                                                            {"\xE2", "\x82"},
                                                                            {"a", "\xC3"},
                                                                            {"\xA9", "b"}}));
  return instance;
}

struct Streamed {
  std::string text;
  bool all_valid = true;
};

Streamed stream(const std::vector<TokenId>& ids) {
  Detokenizer detokenizer(tokenizer());
  Streamed out;
  const auto take = [&](const std::string& delta) {
    out.all_valid = out.all_valid && utf8::is_valid(delta);
    out.text += delta;
  };
  for (const TokenId id : ids) take(detokenizer.push(id));
  take(detokenizer.finish());
  return out;
}

TEST(Detokenizer, NeverCutsACharacter) {
  const std::string text = "a😀é👨‍👩‍👧 ďábel 漢字仮 €";
  const Streamed bytes = stream(test::byte_ids(text));  // a cut at every byte
  EXPECT_TRUE(bytes.all_valid);
  EXPECT_EQ(bytes.text, text);
  EXPECT_EQ(bytes.text.find("\uFFFD"), std::string::npos);

  Detokenizer detokenizer(tokenizer());
  EXPECT_EQ(detokenizer.push(0xF0), "");
  EXPECT_EQ(detokenizer.push(0x9F), "");
  EXPECT_EQ(detokenizer.push(258), "😀");  // "\x98\x80"
  EXPECT_EQ(detokenizer.push(257), "");    // "\xF0\x9F\x98"
  EXPECT_EQ(detokenizer.push('x'), "\uFFFDx");
  EXPECT_EQ(detokenizer.push(256), "");
  EXPECT_EQ(detokenizer.finish(), "\uFFFD");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, EqualsDecodeOnAnyIds) {
  std::mt19937 random(3);
  const std::vector<TokenId> likely = {0xF0, 0x9F, 0x98, 0x80, 0xE2,         0x82,         0xAC, 0xC3,
                                       0xA9, 'a',  0xED, 0xA0, 0xF4,         0xFF,         256,  257,
                                       258,  259,  260,  261,  test::kThink, test::kImEnd, 999,  -1};
  for (int round = 0; round < 5000; ++round) {
    std::vector<TokenId> ids;
    for (std::size_t n = random() % 12; n > 0; --n) ids.push_back(likely[random() % likely.size()]);
    const Streamed streamed = stream(ids);
    ASSERT_EQ(streamed.text, tokenizer().decode(ids));
    ASSERT_TRUE(streamed.all_valid);
  }
}

}  // namespace
}  // namespace lily
