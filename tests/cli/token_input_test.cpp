#include "cli/token_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lily {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(TokenInput, ReadsListsAsPeopleWriteThem) {
  EXPECT_THAT(*parse_ids("1,2,3"), ElementsAre(1, 2, 3));
  EXPECT_THAT(*parse_ids(" 1 2\n3,\t4,\r\n"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(*parse_ids(""), IsEmpty());
  EXPECT_EQ(join_ids({1, 2, 3}), "1,2,3");
  EXPECT_EQ(join_ids({}), "");
}

TEST(TokenInput, NamesTheItemItCannotRead) {
  for (const char* text : {"1,x", "1,-2", "1,2.5", "1,2147483648", "1,+2", "1;2"}) {
    const auto ids = parse_ids(text);
    ASSERT_FALSE(ids.ok()) << text;
    EXPECT_THAT(ids.error().message, HasSubstr("expected token ids like 1,2,3, found '"));
  }
  EXPECT_THAT(parse_ids("1,x").error().message, HasSubstr("found 'x' at item 2"));
}

TEST(TokenInput, ChecksAgainstTheVocabulary) {
  EXPECT_TRUE(check_ids({0, 9}, 10).ok());
  EXPECT_EQ(check_ids({0, 10}, 10).error().message, "token id 10 at item 2: expected 0 to 9");
  EXPECT_FALSE(check_ids({-1}, 10).ok());
  EXPECT_FALSE(check_ids({}, 10).ok());
}

TEST(TokenInput, WantsExactlyOneSource) {
  Options options;
  EXPECT_THAT(required_ids(options).error().message, HasSubstr("found neither"));
  options.ids = {1};
  EXPECT_THAT(*required_ids(options), ElementsAre(1));
  options.ids_file = "f.npy";
  EXPECT_THAT(required_ids(options).error().message, HasSubstr("found both"));
}

}  // namespace
}  // namespace lily
