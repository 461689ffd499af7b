#include "checkpoint/report.h"

#include <gtest/gtest.h>

namespace lily {
namespace {

TEST(Report, NamesAreOneHarmlessLine) {
  EXPECT_EQ(printable("model.norm.weight"), "model.norm.weight");
  EXPECT_EQ(printable("a\nb\x1b[31m\xff"), "a?b?[31m?");
  const std::string shown = printable(std::string(100000, 'x'));
  EXPECT_LT(shown.size(), 250U);
}

TEST(Report, ListsAreCapped) {
  EXPECT_EQ(list_names({"a"}), "a");
  EXPECT_EQ(list_names({"a", "b", "c", "d", "e"}), "a, b, c, d, e");
  EXPECT_EQ(list_names({"a", "b", "c", "d", "e", "f", "g"}), "a, b, c, d, e and 2 more");
}

TEST(Report, CombinedErrorKeepsTheFirstCodeAndCountsTheRest) {
  std::vector<Error> problems(8, Error{ErrorCode::kCorrupt, "x: bad"});
  problems[0] = {ErrorCode::kNotFound, "y: missing"};
  const Error error = combine(problems);
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_EQ(error.message, "y: missing; x: bad; x: bad; x: bad; x: bad; and 3 more");
}

}  // namespace
}  // namespace lily
